"""How far staging has come: bars on a terminal, lines in a pipe. Called from several threads, prints from one lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from optaned.pipeline.staging.plan import Job
from optaned.pipeline.staging.run import Reporter
from optaned.pipeline.staging.targets import Target
from optaned.units import format_bytes

# A log of a night's staging stays readable.
LINE_EVERY_S = 10.0


@contextmanager
def reporter(*, is_terminal: bool) -> Iterator[Reporter]:
    """Yield who shows the progress, on stderr."""
    if not is_terminal:
        yield Lines()
        return
    bars = Bars()
    with bars.progress:
        yield bars


class Lines:
    """A line when a file begins and ends, and one each LINE_EVERY_S between."""

    def __init__(self, *, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._totals: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._said_s: dict[str, float] = {}

    def begun(self, job: Job, doing: str, size_bytes: int) -> None:
        with self._lock:
            self._totals[job.name], self._done[job.name] = size_bytes, 0
            self._said_s[job.name] = self._clock()
            self._say(f"{job.name}: {doing}, {format_bytes(job.size_bytes)} to {job.target.name}")

    def advanced(self, job: Job, size_bytes: int) -> None:
        with self._lock:
            self._done[job.name] += size_bytes
            if self._clock() - self._said_s[job.name] >= LINE_EVERY_S:
                self._said_s[job.name] = self._clock()
                share = self._done[job.name] / max(1, self._totals[job.name])
                self._say(f"{job.name}: {min(share, 1.0):.0%}")

    def ended(self, job: Job, outcome: str) -> None:
        with self._lock:
            self._say(f"{job.name}: {outcome}")

    def held(self, target: Target, reason: str | None) -> None:
        with self._lock:
            self._say(f"{target.name}: {f'held: {reason}' if reason else 'goes on'}")

    @staticmethod
    def _say(line: str) -> None:
        click.echo(line, err=True)


class Bars:
    """A bar for each file at hand."""

    def __init__(self) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}
        self._names: dict[str, str] = {}

    def begun(self, job: Job, doing: str, size_bytes: int) -> None:
        self._tasks[job.name] = self.progress.add_task(f"{job.name} → {job.target.name}", total=size_bytes, note=doing)
        self._names[job.target.name] = job.name

    def advanced(self, job: Job, size_bytes: int) -> None:
        self.progress.update(self._tasks[job.name], advance=size_bytes)

    def ended(self, job: Job, outcome: str) -> None:
        task = self._tasks.pop(job.name, None)
        if task is not None:
            self.progress.remove_task(task)
        self.progress.console.print(f"{job.name}: {outcome}", highlight=False, markup=False)

    def held(self, target: Target, reason: str | None) -> None:
        task = self._tasks.get(self._names.get(target.name, ""))
        if task is not None:
            self.progress.update(task, note=f"held: {reason}" if reason else "")
