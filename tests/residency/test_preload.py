"""The preloaded library: a listed file is mapped without being read, and everything else is as it always was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from optaned.errors import MissingFileError, UnavailableError
from optaned.residency import preload

SIZE = 8 << 20
# What a model library does: map with MAP_POPULATE, advise WILLNEED by both names. Says how much was read, and how much
# of the file is in memory afterwards.
MAPS = """
import ctypes, json, mmap, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
for name in ("madvise", "posix_madvise"):
    getattr(libc, name).argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
libc.posix_fadvise.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int)
path, how = sys.argv[1:3]
fd = os.open(path, os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
size = os.fstat(fd).st_size
flags = mmap.MAP_SHARED | (0x8000 if how == "populate" else 0)
at = libc.mmap(None, size, mmap.PROT_READ, flags, fd, 0)
answer = {
    "populate": lambda: 0,
    "madvise": lambda: libc.madvise(at, size, 3),
    "posix_madvise": lambda: libc.posix_madvise(at, size, 3),
    "fadvise": lambda: libc.posix_fadvise(fd, 0, 0, 3),
    "read": lambda: len(os.read(fd, size)) - size,
}[how]()
pages = (ctypes.c_ubyte * (size // 4096))()
def resident():
    libc.mincore(at, size, pages)
    return sum(page & 1 for page in pages) * 4096
deadline = time.monotonic() + (5 if sys.argv[3] == "all" else 0.3)
while resident() < size and time.monotonic() < deadline:
    time.sleep(0.01)
seen = resident()
print(json.dumps({"answer": answer, "resident": seen, "last": ctypes.c_ubyte.from_address(at + size - 1).value}))
"""
pytestmark = pytest.mark.skipif(preload.library() is None, reason="the native parts were not built")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.gguf"
    path.write_bytes(os.urandom(SIZE - 1) + b"\x7f")
    os.sync()  # a page that is not on disk yet cannot be dropped
    return path


def maps(path: Path, how: str, listed: list[Path], expect: str) -> dict[str, int]:
    environment = {**os.environ, **(preload.environment(listed) if listed else {})}
    command = [sys.executable, "-c", textwrap.dedent(MAPS), str(path), how, expect]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("how", ["populate", "madvise", "posix_madvise", "fadvise"])
def test_a_listed_file_is_mapped_without_being_read(file: Path, how: str) -> None:
    seen = maps(file, how, [file], "none")
    assert seen["answer"] == 0
    assert seen["resident"] == 0
    assert seen["last"] == 0x7F


@pytest.mark.parametrize("how", ["populate", "madvise", "posix_madvise", "fadvise"])
def test_another_file_is_read_as_always(file: Path, tmp_path: Path, how: str) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x")
    assert maps(file, how, [other], "all")["resident"] == SIZE


def test_a_listed_file_can_still_be_read(file: Path) -> None:
    assert maps(file, "read", [file], "all")["answer"] == 0


def test_a_link_is_the_file_that_it_leads_to(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(file)
    assert maps(file, "populate", [link], "none")["resident"] == 0


def test_what_was_preloaded_before_stays(file: Path) -> None:
    found = preload.environment([file], {"LD_PRELOAD": "/lib/other.so"})
    assert found["LD_PRELOAD"] == f"{preload.library()} /lib/other.so"


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no/such"):
        preload.environment([tmp_path / "no" / "such"])


def test_what_was_not_built_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "library", lambda: None)
    with pytest.raises(UnavailableError, match="install a C compiler"):
        preload.environment([file])
