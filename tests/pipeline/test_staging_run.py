"""Staging as a whole: planned, copied, verified, freed, gone on with."""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from optaned.domain.thermal import Level
from optaned.errors import ModelFileError, UnavailableError
from optaned.index import read_index
from optaned.pipeline.staging.manifest import parse_manifest, read_manifest
from optaned.pipeline.staging.plan import Doing, Job, StagePlan, plan_staging
from optaned.pipeline.staging.run import Staging, cpus_of
from optaned.pipeline.staging.sources import find_sources
from optaned.pipeline.staging.targets import Target
from optaned.system.boottime import boottime_s
from optaned.system.thermal_word import ThermalWord, WordWriter
from optaned.testing.gguf import build_moe, build_split

PLENTY = 1 << 40


@dataclass
class Notes:
    """A reporter that remembers."""

    outcomes: dict[str, str] = field(default_factory=dict)
    holds: list[str | None] = field(default_factory=list)
    is_held: threading.Event = field(default_factory=threading.Event)

    def begun(self, job: Job, doing: str, size_bytes: int) -> None:
        pass

    def advanced(self, job: Job, size_bytes: int) -> None:
        pass

    def ended(self, job: Job, outcome: str) -> None:
        self.outcomes[job.name] = outcome

    def held(self, target: Target, reason: str | None) -> None:
        self.holds.append(reason)
        self.is_held.set()


@dataclass
class Place:
    """A model's shards and two folders to stage to, as if they were two file systems."""

    folder: Path
    shards: tuple[Path, ...]

    def targets(self, free_bytes: int = PLENTY, *, apart: bool = True) -> tuple[Target, ...]:
        own = self.folder.stat().st_dev
        return tuple(
            Target(f"pmem{n}", self.folder / f"pmem{n}", own + 1 + n if apart else own, free_bytes) for n in range(2)
        )

    def plan(
        self, *, free_bytes: int = PLENTY, apart: bool = True, resplit: bool = False, move: bool = False
    ) -> StagePlan:
        targets = self.targets(free_bytes, apart=apart)
        return plan_staging(find_sources([self.folder / "from"]), targets, resplit=resplit, move=move)

    def stage(self, plan: StagePlan, *, verify: bool = False, move: bool = False) -> Notes:
        notes = Notes()
        Staging(self.folder / "guard" / "word", notes, verify=verify, move=move).run(plan)
        return notes

    @property
    def staged(self) -> list[Path]:
        return sorted(self.folder.glob("pmem?/*.gguf"), key=lambda path: path.name)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in ("from", "pmem0", "pmem1"):
        (tmp_path / name).mkdir()
    return Place(tmp_path, build_split(tmp_path / "from" / "m.gguf", shards=4, experts=8))


def test_all_shards_arrive_and_make_the_same_model(place: Place) -> None:
    digest = read_index(place.shards).digest
    notes = place.stage(place.plan())
    assert set(notes.outcomes.values()) == {"copied"}
    assert {path.parent.name for path in place.staged} == {"pmem0", "pmem1"}
    assert read_index(place.staged).digest == digest
    assert all(path.exists() for path in place.shards)


def test_digests_are_recorded_as_b2sum_writes_them(place: Place) -> None:
    place.stage(place.plan(), verify=True)
    for path in place.staged:
        assert read_manifest(path.parent)[path.name] == hashlib.blake2b(path.read_bytes()).hexdigest()


def test_shards_come_singly_and_in_any_order(place: Place) -> None:
    late = {path: path.read_bytes() for path in (place.shards[2], place.shards[0])}
    for path in late:
        os.truncate(path, 5000)
    plan = place.plan()
    assert [job.doing for job in plan.jobs] == [Doing.WAIT, Doing.COPY, Doing.WAIT, Doing.COPY]
    place.stage(plan)
    for path, content in late.items():
        path.write_bytes(content)
        place.stage(place.plan())
    assert read_index(place.staged).digest == read_index(place.shards).digest
    assert [job.doing for job in place.plan().jobs] == [Doing.THERE] * 4


def test_what_is_fetched_in_place_is_left_alone(place: Place) -> None:
    there = place.shards[0].rename(place.folder / "pmem1" / place.shards[0].name)
    size = there.stat().st_size
    os.truncate(there, size - 500)
    plan = plan_staging(find_sources([there, *place.shards[1:]]), place.targets())
    assert (plan.jobs[0].doing, plan.jobs[0].path) == (Doing.WAIT, there)
    place.stage(plan)
    assert there.stat().st_size == size - 500


def test_moving_frees_each_source_and_only_after_it_was_verified(place: Place) -> None:
    digest = read_index(place.shards).digest
    notes = place.stage(place.plan(move=True), move=True)
    assert set(notes.outcomes.values()) == {"copied, verified, source freed"}
    assert not any(path.exists() for path in place.shards)
    assert read_index(place.staged).digest == digest


def test_moving_behind_a_link_frees_the_bytes_too(place: Place) -> None:
    blob = place.shards[0].rename(place.folder / "blob")
    place.shards[0].symlink_to(blob)
    place.stage(place.plan(move=True), move=True)
    assert not blob.exists()
    assert not place.shards[0].is_symlink()


def test_moving_within_a_file_system_renames(place: Place) -> None:
    inode = place.shards[0].stat().st_ino
    plan = place.plan(move=True, apart=False, free_bytes=0)
    assert {job.doing for job in plan.jobs} == {Doing.RENAME}
    place.stage(plan, move=True)
    assert place.staged[0].stat().st_ino == inode


def test_verifying_what_was_moved_holds_it_against_the_record(place: Place) -> None:
    place.stage(place.plan(move=True), move=True)
    again = plan_staging(find_sources(place.staged), place.targets())
    assert set(place.stage(again, verify=True).outcomes.values()) == {"there already, verified"}
    with place.staged[1].open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    with pytest.raises(ModelFileError, match="is not what B2SUMS beside it recorded"):
        place.stage(again, verify=True)


def test_a_copy_that_differs_is_found_and_the_source_is_kept(place: Place) -> None:
    place.stage(place.plan())
    victim, source = place.staged[3], place.shards[3]
    with victim.open("r+b") as file:  # beside the sampled blocks, which planning compares
        file.seek(victim.stat().st_size // 2 + 5000)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(ModelFileError, match=victim.name):
        place.stage(place.plan(move=True), move=True)
    assert source.exists()


def test_another_file_of_the_same_name_is_never_overwritten(place: Place) -> None:
    (place.folder / "pmem0" / place.shards[0].name).write_bytes(b"something else")
    with pytest.raises(ModelFileError, match="lies there already and differs"):
        place.plan()


def test_one_failure_keeps_no_other_shard_from_being_staged(place: Place) -> None:
    plan = place.plan()
    place.shards[1].unlink()
    with pytest.raises(UnavailableError, match="no such file"):
        place.stage(plan)
    assert len(place.staged) == 3


def test_no_room_is_told_before_anything_is_written(place: Place) -> None:
    with pytest.raises(UnavailableError, match=r"no room for|fit on no mount"):
        place.plan(free_bytes=100_000)
    assert place.staged == []


def test_one_file_on_two_mounts_is_cut_and_every_tensor_checked(tmp_path: Path) -> None:
    for name in ("from", "pmem0", "pmem1"):
        (tmp_path / name).mkdir()
    place = Place(tmp_path, (build_moe(tmp_path / "from" / "m.gguf", layers=4),))
    before = read_index(place.shards)
    free = before.size_bytes * 3 // 4
    with pytest.raises(UnavailableError, match="or let --resplit cut it"):
        place.plan(free_bytes=free)
    plan = place.plan(free_bytes=free, resplit=True)
    notes = place.stage(plan, move=True)
    assert notes.outcomes["all shards"] == "every tensor verified, sources freed"
    after = read_index(place.staged)
    assert not place.shards[0].exists()
    assert {path.parent.name for path in place.staged} == {"pmem0", "pmem1"}
    assert [(t.name, t.shape, t.type) for t in after.tensors] == [(t.name, t.shape, t.type) for t in before.tensors]


def test_cutting_leaves_alone_what_fits(place: Place) -> None:
    assert not place.plan(resplit=True).resplit


def test_a_hot_guard_holds_the_copy_and_a_cool_one_lets_it_go_on(place: Place) -> None:
    writer = WordWriter(place.folder / "guard" / "word")

    def say(level: Level) -> None:
        now_s = boottime_s()
        writer.write(ThermalWord(level, 0.0 if level >= Level.CRITICAL else 1.0, "77 °C", now_s, now_s + 60))

    say(Level.CRITICAL)
    notes = Notes()
    worker = threading.Thread(target=Staging(writer.path, notes).run, args=(place.plan(),))
    worker.start()
    assert notes.is_held.wait(60)
    assert len(place.staged) < 4
    say(Level.COOL)
    worker.join(60)
    assert len(place.staged) == 4
    assert notes.holds[0] == "77 °C"
    writer.close()


def test_cpus_are_read_as_the_kernel_lists_them() -> None:
    assert cpus_of("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert cpus_of("\n") == set()


def test_a_manifest_takes_what_b2sum_wrote_and_nothing_else() -> None:
    line = "0" * 128
    assert parse_manifest(f"{line}  a.gguf\n{line} *b c.gguf\nrubbish\n{line[:-1]}  short\n") == {
        "a.gguf": line,
        "b c.gguf": line,
    }
