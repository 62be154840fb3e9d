"""Measures how fast a tier is read, a few seconds long: memory by reading it, files directly or through a mapping.

Reads as decoding does: large pieces, several threads. Works under a duty: between pieces each thread passes a gate, and the
time that it rests there does not count. Knows no tier and no guard.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from optaned.errors import UnavailableError
from optaned.residency.kernel import LinuxKernel
from optaned.residency.numa import on_node

PIECE_BYTES = 4 << 20
DEFAULT_SECONDS = 2.0
# Far more than any cache; less than what a machine with little memory can spare.
_MEMORY_BYTES = 256 << 20


class Gate(Protocol):
    """What a thread passes between pieces; may wait, may raise to give up."""

    def pass_through(self) -> None: ...

    def close(self) -> None: ...


class OpenGate:
    """Where there is no duty."""

    def pass_through(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """How to measure: `threads` read for `seconds` each, passing a gate of their own; `clock` is monotonic seconds."""

    threads: int
    seconds: float = DEFAULT_SECONDS
    gate: Callable[[], Gate] = OpenGate
    clock: Callable[[], float] = time.perf_counter

    def run(self, reader: Callable[[int], Generator[int, None, None]]) -> float:
        """Return GB/s of all threads together. `reader(thread)` reads piece after piece and yields their bytes."""
        with ThreadPoolExecutor(self.threads, "measure") as pool:
            return sum(pool.map(lambda thread: self._gbps(reader(thread)), range(self.threads)))

    def _gbps(self, pieces: Generator[int, None, None]) -> float:
        gate = self.gate()
        read_bytes, busy_s = 0, 0.0
        try:
            # Opening and first faults are not what is measured.
            gate.pass_through()
            next(pieces, 0)
            while busy_s < self.seconds:
                gate.pass_through()
                began_s = self.clock()
                size = next(pieces, 0)
                if not size:
                    break
                busy_s += self.clock() - began_s
                read_bytes += size
        finally:
            pieces.close()
            gate.close()
        return read_bytes / busy_s / 1e9 if busy_s > 0 else 0.0


def measure_memory(how: Measuring, *, numa_node: int | None = None, size_bytes: int = _MEMORY_BYTES) -> float:
    """Return how fast DRAM (of a node) is read, in GB/s. Raises UnavailableError where memory is refused."""
    kernel, share = LinuxKernel(), size_bytes // how.threads // mmap.PAGESIZE * mmap.PAGESIZE

    def reader(_thread: int) -> Generator[int, None, None]:
        with mmap.mmap(-1, share, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            with on_node(kernel, numa_node):
                np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 1
            yield from _sums(memory, share, 0, 1)

    return _explained("memory", lambda: how.run(reader))


def measure_mapped(path: Path, how: Measuring) -> float:
    """Return how fast a file is read through a mapping, as bytes of PMem are read in place, in GB/s.

    Raises UnavailableError for a file that cannot be read.
    """

    def reader(thread: int) -> Generator[int, None, None]:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            yield from _sums(mapped, len(mapped), thread, how.threads)

    return _explained(str(path), lambda: how.run(reader))


def measure_direct(path: Path, how: Measuring) -> float:
    """Return how fast a file is read past the page cache, in GB/s.

    A file system without direct reads (tmpfs) is read as it can be. Raises UnavailableError.
    """

    def reader(thread: int) -> Generator[int, None, None]:
        fd, size = _open_direct(path), path.stat().st_size
        try:
            with mmap.mmap(-1, PIECE_BYTES) as buffer:
                for offset in _offsets(size, thread, how.threads):
                    yield os.preadv(fd, [buffer], offset)
        finally:
            os.close(fd)

    return _explained(str(path), lambda: how.run(reader))


def _sums(memory: mmap.mmap, size_bytes: int, thread: int, threads: int) -> Generator[int, None, None]:
    """Read each of a thread's pieces by adding it up, over and over."""
    words = np.frombuffer(memory, np.uint64, size_bytes // 8)
    piece, step = words[:0], PIECE_BYTES // 8
    try:
        for offset in _offsets(size_bytes, thread, threads):
            piece = words[offset // 8 : offset // 8 + step]
            piece.sum()
            yield piece.nbytes
    finally:
        # A mapping cannot be closed while an array looks at it.
        del words, piece


def _offsets(size_bytes: int, thread: int, threads: int) -> Generator[int, None, None]:
    """Yield where a thread reads: every `threads`-th piece, from the start again when it is through."""
    own = range(thread * PIECE_BYTES, max(size_bytes, 1), threads * PIECE_BYTES)
    while len(own):
        yield from own


def _open_direct(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _explained(what: str, measure: Callable[[], float]) -> float:
    try:
        return measure()
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UnavailableError(f"{what}: cannot be measured: {reason}") from None
