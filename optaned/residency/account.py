"""What the kernel says of the pages that were moved, against what the ledger says. Reads /proc/self/pagemap.

Measured on one core: `smaps` cannot be asked for a part of a process and walks every mapped page; a pagemap can
be read for our mappings alone and in slices. A look counts one slice and remembers the others, so that its cost does not
grow with the model.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optaned.residency.maps import Mapping

_PAGEMAP = Path("/proc/self/pagemap")
_ENTRY_BYTES = 8
# Bits of an entry: a file's page or shared memory, swapped out, present.
_FILE, _SWAPPED, _PRESENT = (np.uint64(1 << bit) for bit in (61, 62, 63))
# 1 GiB of 4 KiB pages, 2 MiB of entries.
_SLICE_PAGES = 1 << 18


@dataclass(frozen=True, slots=True)
class Counted:
    """Copied pages of the model's mappings, in bytes: in memory, and swapped out (which must not be)."""

    anonymous_bytes: int = 0
    swapped_bytes: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.anonymous_bytes + other.anonymous_bytes, self.swapped_bytes + other.swapped_bytes)


def count(address: int, size_bytes: int) -> Counted:
    """Count the pages of a range. Raises OSError where the pagemap cannot be read."""
    fd = os.open(_PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)
    try:
        total = Counted()
        for begin in range(address, address + size_bytes, _SLICE_PAGES * mmap.PAGESIZE):
            total += _count(fd, begin, min(address + size_bytes - begin, _SLICE_PAGES * mmap.PAGESIZE))
        return total
    finally:
        os.close(fd)


class Account:
    """Counts copied pages slice by slice. One thread."""

    def __init__(self, mappings: Sequence[Mapping], slice_bytes: int = _SLICE_PAGES * mmap.PAGESIZE) -> None:
        self._slices = [
            (mapping.address + begin, min(slice_bytes, mapping.size_bytes - begin))
            for mapping in mappings
            for begin in range(0, mapping.size_bytes, slice_bytes)
        ]
        self._counted = [Counted()] * len(self._slices)
        self._next = 0

    def look(self, slices: int = 4) -> Counted:
        """Count the next `slices` slices anew and return the sum of all as they were last seen. Raises OSError."""
        for _ in range(min(slices, len(self._slices))):
            self._counted[self._next] = count(*self._slices[self._next])
            self._next = (self._next + 1) % len(self._slices)
        return sum(self._counted, Counted())

    def look_at_all(self) -> Counted:
        """Count everything: for benchmarks, tests and after the first promotion. Raises OSError."""
        return self.look(len(self._slices))


def _count(fd: int, address: int, size_bytes: int) -> Counted:
    wanted = size_bytes // mmap.PAGESIZE * _ENTRY_BYTES
    entries = np.frombuffer(os.pread(fd, wanted, address // mmap.PAGESIZE * _ENTRY_BYTES), np.uint64)
    ours = (entries & _FILE) == 0
    anonymous = int(np.count_nonzero(ours & ((entries & _PRESENT) != 0)))
    swapped = int(np.count_nonzero(ours & ((entries & _SWAPPED) != 0)))
    return Counted(anonymous * mmap.PAGESIZE, swapped * mmap.PAGESIZE)
