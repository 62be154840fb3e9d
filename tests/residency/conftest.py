"""Models that are really loaded and files that are really mapped, for moving their pages about."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from optaned.api import Backend, LoadRequest, Model, Row
from optaned.residency.kernel import LinuxKernel


class RefusingKernel(LinuxKernel):
    """The real kernel, which refuses what a test says: `refuse[(name, n)] = errno` for the n-th call of a name."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: dict[tuple[str, int], int] = {}
        self.calls: list[str] = []
        self.sizes: list[int] = []

    def _say(self, name: str) -> None:
        self.calls.append(name)
        if number := self.refuse.get((name, self.calls.count(name))):
            raise OSError(number, os.strerror(number))

    def map_private(self, address: int, size_bytes: int, fd: int, offset: int) -> None:
        self._say("map_private")
        super().map_private(address, size_bytes, fd, offset)

    def map_shared(self, address: int, size_bytes: int, fd: int, offset: int) -> None:
        self._say("map_shared")
        super().map_shared(address, size_bytes, fd, offset)

    def advise(self, address: int, size_bytes: int, advice: int) -> None:
        self._say(f"advise {advice}")
        self.sizes.append(size_bytes)
        super().advise(address, size_bytes, advice)

    def prefer_node(self, node: int | None) -> None:
        self._say("prefer_node")
        super().prefer_node(node)


@pytest.fixture
def kernel() -> RefusingKernel:
    return RefusingKernel()


class MappedFiles:
    """What a model library does: maps files shared and for reading, and unmaps them in the end."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._mmap, self._munmap = libc.mmap, libc.munmap
        self._mmap.restype = ctypes.c_void_p
        self._mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64)
        self._munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._parts: list[tuple[int, int]] = []

    def map(self, path: Path, *, offset: int = 0, size_bytes: int | None = None) -> int:
        """Map a part of a file and return its address."""
        size = size_bytes or path.stat().st_size - offset
        fd = os.open(path, os.O_RDONLY)
        address: int = self._mmap(None, size, 1, 1, fd, offset)
        os.close(fd)
        assert address != ctypes.c_void_p(-1).value
        self._parts.append((address, size))
        return address

    def unmap(self, address: int, size_bytes: int) -> None:
        """Unmap a part, as libraries do with what holds no tensor."""
        assert self._munmap(address, size_bytes) == 0

    def close(self) -> None:
        for address, size in self._parts:
            self.unmap(address, size)


@pytest.fixture
def mapped() -> Iterator[MappedFiles]:
    files = MappedFiles()
    yield files
    files.close()


def mapping_count(files: Sequence[Path]) -> int:
    """Return how many mappings the kernel keeps for these files."""
    names = tuple(str(file.resolve()) for file in files)
    return sum(line.endswith(names) for line in Path("/proc/self/maps").read_text().splitlines())


def smaps_anonymous(address: int, size_bytes: int) -> int:
    """Return the bytes that smaps shows as anonymous within a range of whole mappings."""
    inside, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split(maxsplit=1)[0]
        if "-" in head and not head.endswith(":"):
            start, _, end = head.partition("-")
            inside = address <= int(start, 16) and int(end, 16) <= address + size_bytes
        elif inside and head == "Anonymous:":
            total += int(line.split()[1]) * 1024
    return total


# ---- real models -----------------------------------------------------------------------------------------------------


class Loaded:
    """A real model, and the logits of its answer to a fixed prompt as bytes."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def logits(self, tokens: int = 16) -> NDArray[np.float32]:
        """Return the logits after each of so many greedy tokens, from an empty slot."""
        self.model.cut(0, 0)
        prompt = self.model.vocabulary.tokenize("The quick brown fox", special=False, bos=True)
        self.model.decode([Row(t, i, 0, i == len(prompt) - 1) for i, t in enumerate(prompt)])
        rows = [self._row()]
        for position in range(len(prompt), len(prompt) + tokens - 1):
            self.model.decode([Row(int(rows[-1].argmax()), position, 0, logits=True)])
            rows.append(self._row())
        return np.stack(rows)

    def _row(self) -> NDArray[np.float32]:
        inner: Any = self.model
        address = inner._library.logits_row(inner._context, -1)  # of the last row
        row = (ctypes.c_float * self.model.vocabulary.info.size).from_address(address)
        return np.frombuffer(row, np.float32).copy()


@pytest.fixture
def load(backend: Backend) -> Iterator[Callable[[Sequence[Path]], Loaded]]:
    opened: list[Model] = []

    def open_one(files: Sequence[Path]) -> Loaded:
        request = LoadRequest(tuple(files), context=256, slots=1, threads=1, batch=64)
        opened.append(backend.load(request, lambda _fraction: True))
        return Loaded(opened[-1])

    yield open_one
    for model in opened:
        model.close()


@pytest.fixture
def run_apart() -> Callable[[str], str]:
    """Return a function that runs code in an interpreter of its own and returns what it said."""

    def run(code: str) -> str:
        root = Path(__file__).resolve().parents[2]
        environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'plugins'}"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    return run
