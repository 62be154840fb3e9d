"""Files mapped as a model library maps them, and read now and then: whoever moves their pages has something to move."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path


class MappedFiles:
    """Those of `files` that are there. A read byte that changed is a bug of whoever moved it, and raises."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(file for file in files if file.is_file())
        self._maps = [_map(file) for file in self.files]
        self._sums = [_sample(mapped) for mapped in self._maps]

    def read(self) -> None:
        """Read some bytes of each file. Raises RuntimeError when they are not what they were."""
        for file, mapped, known in zip(self.files, self._maps, self._sums, strict=True):
            if _sample(mapped) != known:
                raise RuntimeError(f"{file}: its bytes changed while it was mapped")

    def close(self) -> None:
        """Unmap."""
        for mapped in self._maps:
            mapped.close()
        self._maps, self._sums, self.files = [], [], ()


def _map(file: Path) -> mmap.mmap:
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)


def _sample(mapped: mmap.mmap) -> bytes:
    step = max(1, len(mapped) // 64)
    return mapped[::step][:64]
