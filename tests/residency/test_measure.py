"""Bandwidth by a clock that the readers turn: what counts, what does not, and what cannot be measured."""

from __future__ import annotations

import mmap
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from optaned.errors import UnavailableError
from optaned.residency.measure import PIECE_BYTES, Measuring, measure_direct, measure_mapped, measure_memory


@dataclass
class Bench:
    """A clock that stands still but for reading (1 s a piece) and resting (10 s a gate)."""

    now_s: float = 0.0
    passed: int = 0
    closed: int = 0
    pieces: list[int] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def pass_through(self) -> None:
        self.passed += 1
        self.now_s += 10.0

    def close(self) -> None:
        self.closed += 1

    def reader(self, _thread: int) -> Generator[int, None, None]:
        for size in self.pieces:
            self.now_s += 1.0
            yield size


def measuring(bench: Bench, *, seconds: float = 3.0) -> Measuring:
    return Measuring(1, seconds, gate=lambda: bench, clock=bench.clock)


def test_only_reading_counts_neither_opening_nor_resting() -> None:
    bench = Bench(pieces=[1, *[2_000_000_000] * 10])
    assert measuring(bench).run(bench.reader) == pytest.approx(2.0)
    assert (bench.passed, bench.closed) == (4, 1)


def test_a_reader_that_runs_dry_ends_the_measurement() -> None:
    bench = Bench(pieces=[1, 3_000_000_000])
    assert measuring(bench).run(bench.reader) == pytest.approx(3.0)
    assert measuring(empty := Bench()).run(empty.reader) == 0.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(PIECE_BYTES + mmap.PAGESIZE + 5))
    return path


def quick(threads: int = 2) -> Measuring:
    return Measuring(threads, 0.02)


def test_memory_and_files_have_a_speed(file: Path) -> None:
    assert measure_memory(quick(), size_bytes=16 << 20) > 0
    assert measure_mapped(file, quick()) > 0
    assert measure_direct(file, quick()) > 0


def test_more_threads_than_pieces_leave_some_idle(file: Path) -> None:
    assert measure_direct(file, quick(threads=5)) > 0
    assert measure_mapped(file, quick(threads=5)) > 0


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"m\.gguf: cannot be measured: no such file"):
        measure_direct(tmp_path / "m.gguf", quick())
    (tmp_path / "empty").touch()
    with pytest.raises(UnavailableError, match="cannot be measured: cannot mmap an empty file"):
        measure_mapped(tmp_path / "empty", quick())
