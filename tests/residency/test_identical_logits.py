"""Logits are bit for bit the same wherever the bytes lie, and while they are being moved."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from optaned.domain.model import ByteRange, Group, ModelIndex
from optaned.index.read import read_index
from optaned.residency.account import Account
from optaned.residency.opening import open_pages
from optaned.testing.gguf import build_moe, build_split
from optaned.testing.kimi_k3 import build_kimi_k3
from tests.residency.conftest import Loaded, mapping_count

Load = Callable[[Sequence[Path]], Loaded]


def smol(folder: Path, smol_file: Path) -> tuple[Path, ...]:
    """A copy, behind a link: other tests of this process may have the original mapped."""
    copy, link = folder / "copy.gguf", folder / "smol.gguf"
    shutil.copyfile(smol_file, copy)
    link.symlink_to(copy)
    return (link,)


def moe(folder: Path, _smol_file: Path) -> tuple[Path, ...]:
    return (build_moe(folder / "moe.gguf", experts=16, used=4),)


def two_folders(folder: Path, _smol_file: Path) -> tuple[Path, ...]:
    """As on a machine with a mount for each socket."""
    shards = build_split(folder / "split.gguf", shards=4, experts=8)
    (folder / "other").mkdir()
    return tuple(s.rename(folder / "other" / s.name) if n % 2 else s for n, s in enumerate(shards))


def kimi(folder: Path, _smol_file: Path) -> tuple[Path, ...]:
    return build_kimi_k3(folder / "kimi.gguf")


@pytest.mark.parametrize("build", [smol, moe, two_folders, kimi])
def test_logits_do_not_depend_on_where_bytes_lie(
    build: Callable[[Path, Path], tuple[Path, ...]], tmp_path: Path, smol_file: Path, load: Load
) -> None:
    files = build(tmp_path, smol_file)
    index, loaded = read_index(files), load(files)
    at_home, mappings = loaded.logits(), mapping_count(files)
    pages = open_pages(files, in_place=[True] * len(files))
    everything = [tensor.place for tensor in index.tensors]
    try:
        assert mapping_count(files) == mappings
        np.testing.assert_array_equal(loaded.logits(), at_home)

        moved = pages.promote(everything, numa_node=None)
        assert (moved.size_bytes, moved.fault) == (index.size_bytes, None)
        assert Account(pages.mappings).look_at_all().anonymous_bytes == pages.resident_page_bytes
        np.testing.assert_array_equal(loaded.logits(), at_home)

        with Churning(pages, parts_of(index)):
            for _ in range(3):
                np.testing.assert_array_equal(loaded.logits(), at_home)

        pages.demote(everything)
        assert pages.resident_bytes == Account(pages.mappings).look_at_all().anonymous_bytes == 0
        np.testing.assert_array_equal(loaded.logits(), at_home)
        assert mapping_count(files) == mappings
    finally:
        pages.close()


def parts_of(index: ModelIndex) -> list[tuple[ByteRange, ...]]:
    """Return what moves as one: each expert, and each tensor of the trunk."""
    trunk = [(tensor.place,) for tensor in index.tensors if tensor.group is Group.TRUNK]
    experts = [index.expert_ranges(layer, e) for layer in index.expert_layers for e in range(index.expert_count)]
    return trunk + experts


class Churning:
    """Within the block another thread demotes and promotes all the time."""

    def __init__(self, pages: object, parts: list[tuple[ByteRange, ...]]) -> None:
        self._pages, self._parts = pages, parts
        self._stop = threading.Event()
        self._once = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._once.wait(60)

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pages = self._pages
        while not self._stop.is_set():
            for part in self._parts[::3]:
                pages.demote(part)
            for part in self._parts[::3]:
                pages.promote(part, numa_node=None)
            self._once.set()
