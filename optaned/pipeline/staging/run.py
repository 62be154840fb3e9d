"""Carries a staging plan out: one worker a target, so that each socket's memory is written by its own cores.

Knows the order of copying, verifying, recording and freeing. A source is freed only after its copy has been read back from
the medium and its digest has been recorded beside it. One file's failure does not keep the others from being staged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from optaned.errors import ModelFileError, OptanedError, UnavailableError
from optaned.pipeline.staging.copying import Copier, Watcher
from optaned.pipeline.staging.direct import sync_folder
from optaned.pipeline.staging.manifest import read_manifest, record
from optaned.pipeline.staging.plan import Doing, Job, StagePlan
from optaned.pipeline.staging.targets import Target
from optaned.pipeline.staging.verify import check_tensors
from optaned.system.duty import DutyGate


class Reporter(Protocol):
    """Who shows progress. Called from several threads."""

    def begun(self, job: Job, doing: str, size_bytes: int) -> None:
        """Hear that a job begins to copy, go on, verify or compare so many bytes."""

    def advanced(self, job: Job, size_bytes: int) -> None: ...

    def ended(self, job: Job, outcome: str) -> None: ...

    def held(self, target: Target, reason: str | None) -> None:
        """Hear why a target's work is held or slowed; None when it goes on."""


class Interrupted(Exception):  # noqa: N818  not an error: somebody asked for it
    """The rest was given up; what was begun can be gone on with."""


@dataclass
class Staging:
    """How to stage: `verify` reads copies back; `move` frees sources, and verifies for it; the word to obey."""

    word_path: Path
    reporter: Reporter
    verify: bool = False
    move: bool = False
    sysroot: Path = Path("/")
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self, plan: StagePlan) -> None:
        """Stage all that does not wait. Raises the first error's kind with a line for each file that failed."""
        targets = list(dict.fromkeys(job.target for job in plan.todo))
        if not targets:
            return
        try:
            with ThreadPoolExecutor(len(targets), "stage") as pool:
                workers = [pool.submit(self._work, target, plan) for target in targets]
                try:
                    faults = [fault for worker in workers for fault in worker.result()]
                except BaseException:
                    self._stop.set()
                    raise
        except Interrupted:
            raise KeyboardInterrupt from None
        if faults:
            raise type(faults[0])(*(line for fault in faults for line in fault.lines))
        if plan.resplit:
            self._check_resplit(plan)

    def _work(self, target: Target, plan: StagePlan) -> list[OptanedError]:
        _stay_near(target, self.sysroot)
        gate = DutyGate(
            self.word_path, tell=lambda reason: self.reporter.held(target, reason), check=self._check_stopped
        )
        freeing = self.move and not plan.resplit
        try:
            done = [self._one(job, gate, freeing=freeing) for job in plan.todo if job.target == target]
        finally:
            gate.close()
        return [fault for fault in done if fault is not None]

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise Interrupted

    def _one(self, job: Job, gate: DutyGate, *, freeing: bool) -> OptanedError | None:
        copier = Copier(Watcher(gate.pass_through, lambda size_bytes: self.reporter.advanced(job, size_bytes)))
        try:
            self.reporter.ended(job, self._stage(job, copier, freeing=freeing))
        except OptanedError as error:
            return error
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            return UnavailableError(f"{error.filename or job.path}: {reason}; stage it again, it goes on where it was")
        finally:
            copier.close()
        return None

    def _stage(self, job: Job, copier: Copier, *, freeing: bool) -> str:
        """Do one job and return its outcome in words."""
        if job.recipe is None:
            raise AssertionError(f"{job.name} waits and was begun")
        if job.doing is Doing.RENAME:
            return self._rename(job)
        if job.doing is Doing.THERE:
            return self._compare(job, copier, freeing=freeing)
        verify = self.verify or self.move
        self.reporter.begun(job, str(job.doing), job.size_bytes * (2 if verify else 1))
        copied = copier.copy(job.recipe, job.target.folder, verify=verify)
        record(job.target.folder, {job.name: copied.digest})
        words = ["copied", *(["verified"] if verify else []), *(["source freed"] if freeing else [])]
        if freeing:
            _free(job.recipe.sources, keep=copied.path)
        return ", ".join(words)

    def _rename(self, job: Job) -> str:
        source = _source_of(job)
        self.reporter.begun(job, "rename", 0)
        os.rename(source, job.path)  # noqa: PTH104  `Path.rename` follows no link either; this says what it is
        sync_folder(job.target.folder)
        sync_folder(source.parent)
        return "renamed on its own file system"

    def _compare(self, job: Job, copier: Copier, *, freeing: bool) -> str:
        """Hold what lies there against the manifest or its source; without being asked to, trust header and samples."""
        if not (self.verify or self.move) or job.recipe is None:
            return "there already"
        recorded = read_manifest(job.target.folder).get(job.name)
        source = job.recipe.whole
        apart = source is not None and source.exists() and not source.samefile(job.path)
        self.reporter.begun(job, "verify", job.size_bytes * (2 if apart else 1))
        found = copier.digest_of(job.path)
        if recorded not in (None, found):
            raise ModelFileError(f"{job.path}: is not what B2SUMS beside it recorded; remove it and stage it again")
        if source is not None and apart and copier.digest_of(source) != found:
            raise ModelFileError(f"{job.path}: differs from {source}; remove it and stage it again")
        record(job.target.folder, {job.name: found})
        if freeing and apart:
            _free(job.recipe.sources, keep=job.path)
            return "there already, verified, source freed"
        return "there already, " + ("verified" if apart or recorded else "its digest is now recorded")

    def _check_resplit(self, plan: StagePlan) -> None:
        """Compare all tensors, as none of the new files has a source that it equals, and only then free."""
        gate = DutyGate(self.word_path, check=self._check_stopped)
        size_bytes = sum(tensor.size_bytes for header in plan.resplit for tensor in header.tensors)
        every = Job("all shards", size_bytes, plan.jobs[-1].target, Doing.THERE)
        self.reporter.begun(every, "compare tensors", 2 * size_bytes)

        def passed(size_bytes: int) -> None:
            self.reporter.advanced(every, size_bytes)
            gate.pass_through()

        try:
            check_tensors(plan.resplit, [job.path for job in plan.jobs], passed)
        finally:
            gate.close()
        if self.move:
            _free([header.path for header in plan.resplit])
        self.reporter.ended(every, "every tensor verified" + (", sources freed" if self.move else ""))


def _source_of(job: Job) -> Path:
    if job.recipe is None or job.recipe.whole is None:
        raise AssertionError(f"{job.name} has no single source")
    return job.recipe.whole.resolve()


def _free(sources: Sequence[Path], *, keep: Path | None = None) -> None:
    """Remove sources; a link's target too, as caches of downloads keep the bytes behind links."""
    for source in sources:
        real = source.resolve()
        if keep is None or not real.samefile(keep):
            real.unlink()
            source.unlink(missing_ok=True)


def _stay_near(target: Target, sysroot: Path, affinity: Callable[[int, set[int]], None] = os.sched_setaffinity) -> None:
    """Keep this thread on the CPUs of the target's node: writes to another socket's PMem cost half of its speed."""
    if target.numa_node is None:
        return
    try:
        text = (sysroot / f"sys/devices/system/node/node{target.numa_node}/cpulist").read_text()
        affinity(0, cpus_of(text) & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    except OSError:
        return  # a container hides the topology: slower, not wrong


def cpus_of(text: str) -> set[int]:
    """Return the numbers in a kernel's list of CPUs, such as "0-3,8"."""
    spans = (part.partition("-") for part in text.strip().split(",") if part)
    return {cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)}
