"""The block store under a real library: logits are bit for bit those of plain mmap, and loading reads what it must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optaned.api import Backend, LoadRequest
from optaned.domain.model import Group
from optaned.index.read import read_index
from optaned.residency import block, preload
from optaned.residency.block import Announces, BlockStore
from optaned.testing.gguf import build_moe, build_split
from optaned.testing.kimi_k3 import build_kimi_k3
from tests.residency.conftest import Loaded

pytestmark = pytest.mark.skipif(block.refusal() is not None, reason=str(block.refusal()))
Watched = Callable[[Sequence[Path]], Loaded]


@pytest.fixture
def watched(backend: Backend) -> Iterator[Watched]:
    """Return a function that loads files with a watched router."""
    opened: list[Any] = []

    def open_one(files: Sequence[Path]) -> Loaded:
        request = LoadRequest(tuple(files), context=256, slots=1, threads=1, batch=64, index=read_index(files))
        opened.append(backend.load(request, lambda _fraction: True))
        return Loaded(opened[-1])

    yield open_one
    for model in opened:
        model.close()


def moe(folder: Path) -> tuple[Path, ...]:
    return (build_moe(folder / "moe.gguf", experts=16, used=4, layers=4, width=128),)


def two_folders(folder: Path) -> tuple[Path, ...]:
    shards = build_split(folder / "split.gguf", shards=4, experts=8)
    (folder / "other").mkdir()
    return tuple(s.rename(folder / "other" / s.name) if n % 2 else s for n, s in enumerate(shards))


def kimi(folder: Path) -> tuple[Path, ...]:
    """896 experts in a few hundred pages: a page holds a dozen of them."""
    return build_kimi_k3(folder / "kimi.gguf")


@pytest.mark.parametrize("build", [moe, two_folders, kimi])
@pytest.mark.parametrize("share", [0.1, 0.35, 1.1])
def test_logits_do_not_depend_on_what_is_resident(
    build: Callable[[Path], tuple[Path, ...]], share: float, tmp_path: Path, watched: Watched
) -> None:
    files = build(tmp_path)
    index, loaded = read_index(files), watched(files)
    at_home = loaded.logits()
    budget = index.trunk_bytes + int(share * index.expert_bytes)
    store = BlockStore.open(index, files, [True] * len(files), budget_bytes=budget)
    try:
        np.testing.assert_array_equal(loaded.logits(), at_home)  # nothing announced: every read is a fault
        assert isinstance(loaded.model, Announces)
        assert store.attach(loaded.model)
        store.promote_trunk()
        np.testing.assert_array_equal(loaded.logits(), at_home)
        assert store.stats().missed_bytes > 0
        np.testing.assert_array_equal(loaded.logits(), at_home)
        assert store.stats().errors == 0
    finally:
        loaded.model.on_choice(0, 0)  # type: ignore[attr-defined]
        store.close()
    np.testing.assert_array_equal(loaded.logits(), at_home)


def test_logits_do_not_depend_on_what_others_promote_and_demote_meanwhile(tmp_path: Path, watched: Watched) -> None:
    files = moe(tmp_path)
    index, loaded = read_index(files), watched(files)
    at_home = loaded.logits()
    store = BlockStore.open(
        index, files, [True], budget_bytes=index.trunk_bytes + index.expert_bytes // 2, io_threads=2
    )
    store.attach(loaded.model)  # type: ignore[arg-type]
    stop = threading.Event()

    def churn() -> None:
        rng = np.random.default_rng(0)
        while not stop.is_set():
            flats = rng.integers(0, len(store.resident()), 6).tolist()
            store.promote(flats)
            store.demote(flats[2:])

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(3):
            np.testing.assert_array_equal(loaded.logits(), at_home)
    finally:
        stop.set()
        thread.join()
        loaded.model.on_choice(0, 0)  # type: ignore[attr-defined]
        store.close()


LOAD = """
import json, os, sys
from pathlib import Path
import optaned_llamacpp
from optaned.api import Env, LoadRequest
from optaned.index.read import read_index
from optaned.residency.block import BlockStore

def read_bytes():
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))

file = Path(sys.argv[1])
index = read_index([file])
driver = optaned_llamacpp.optaned_backends()[0]
backend = driver.open("llamacpp", driver.options(), Env())
os.posix_fadvise(os.open(file, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
before = read_bytes()
model = backend.load(LoadRequest((file,), context=64, slots=1, threads=1, batch=32, index=index), lambda _fraction: True)
loaded = read_bytes() - before
store = BlockStore.open(index, [file], [True], budget_bytes=index.size_bytes)
store.promote_trunk()
store.promote([3])
print(json.dumps({"loaded": loaded, "all": read_bytes() - before}))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.skipif(preload.library() is None, reason="the native parts were not built")
def test_loading_reads_the_header_the_trunk_and_what_is_planned(tmp_path: Path, backend: Backend) -> None:
    """Read-ahead and whole pages are what may come on top: the header is found by reads of the library's own."""
    file = build_moe(tmp_path / "big.gguf", experts=64, used=4, layers=8, width=128)
    os.sync()  # what is not on disk yet cannot be dropped from the page cache
    index = read_index([file])
    hot_bytes = index.expert_sizes[0]
    root = Path(__file__).resolve().parents[2]
    variables = {**os.environ, **preload.environment([file]), "PYTHONPATH": f"{root}:{root / 'plugins'}"}
    command = [sys.executable, "-c", LOAD, str(file)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    read = json.loads(done.stdout.splitlines()[-1])
    header_bytes = min(t.place.offset for t in index.tensors)
    pages_bytes = 2 * 4096 * sum(1 + (t.group is Group.EXPERT) for t in index.tensors)
    readahead_bytes = 2 << 20
    assert read["loaded"] <= header_bytes + readahead_bytes
    assert read["all"] <= header_bytes + readahead_bytes + index.trunk_bytes + hot_bytes + pages_bytes
    assert index.expert_bytes > 8 * (index.trunk_bytes + readahead_bytes)
