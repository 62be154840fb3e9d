"""A block home's store: whatever is resident, evicted, streamed or announced by nobody, a read gives the file's bytes."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optaned.domain.model import ByteRange, Group, ModelIndex, Shard, Tensor
from optaned.residency import block
from optaned.residency.block import BlockStore
from optaned.residency.cliff import Memory

PAGE = 4096
LAYERS, EXPERTS, USED = 3, 6, 2
pytestmark = pytest.mark.skipif(block.refusal() is not None, reason=str(block.refusal()))

_HOOK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_int
)


def model(path: Path, *, slice_bytes: int = 3 * PAGE + 500, shards: int = 1) -> ModelIndex:
    """Write random bytes and return an index of them: odd sizes, so that neighbours share pages."""
    rng = np.random.default_rng(1)
    tensors, at = [], [PAGE + 32] * shards
    for layer in range(LAYERS):
        shard = layer % shards
        parts = [("attn_q.weight", PAGE + 96, Group.TRUNK)]
        parts += [(f"ffn_{name}_exps.weight", EXPERTS * slice_bytes, Group.EXPERT) for name in ("gate", "up", "down")]
        for name, size, group in parts:
            place = ByteRange(shard, at[shard], size)
            tensors.append(Tensor(f"blk.{layer}.{name}", (size,), "I8", place, layer, group))
            at[shard] += size
    files = [path / f"shard{number}" for number in range(shards)]
    for file, size in zip(files, at, strict=True):
        file.write_bytes(rng.integers(0, 256, size, np.uint8).tobytes())
    return ModelIndex(
        "toy",
        "toy",
        tuple(Shard(file, file.stat().st_size, PAGE) for file in files),
        tuple(tensors),
        "digest",
        LAYERS,
        EXPERTS,
        USED,
    )


@dataclass
class Opened:
    """A store over mapped files, with the files' true bytes beside it."""

    index: ModelIndex
    store: BlockStore
    maps: Sequence[Any]
    truth: Sequence[Any]

    def choose(self, layer: int, rows: Sequence[Sequence[int]], *, prefill: bool = False) -> None:
        ids = np.array(rows, np.int32)
        hook = _HOOK(self.store.hook_function)
        hook(self.store.hook_data, layer, ids.ctypes.data, ids.shape[1], len(ids), ids.strides[0], prefill)

    def expert_is_true(self, layer: int, expert: int) -> bool:
        return all(self.is_true(place) for place in self.index.expert_ranges(layer, expert))

    def is_true(self, place: ByteRange) -> bool:
        mine = self.maps[place.shard][place.offset : place.end]
        return bool((mine == self.truth[place.shard][place.offset : place.end]).all())

    def everything_is_true(self) -> bool:
        return all(self.is_true(tensor.place) for tensor in self.index.tensors)


@contextmanager
def opened(index: ModelIndex, budget_bytes: int, **options: Any) -> Iterator[Opened]:
    files = [shard.path for shard in index.shards]
    handles = [file.open("rb") for file in files]
    maps = [mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED) for handle in handles]
    store = BlockStore.open(index, files, [True] * len(files), budget_bytes=budget_bytes, **options)
    try:
        truth = [np.frombuffer(file.read_bytes(), np.uint8) for file in files]
        yield Opened(index, store, [np.frombuffer(one, np.uint8) for one in maps], truth)
    finally:
        store.close()
        for handle in handles:
            handle.close()


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_a_read_that_nobody_announced_gives_the_files_bytes(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=16 * PAGE) as it:
        assert it.everything_is_true()
        assert it.store.stats().faults > 0


def test_a_chosen_expert_is_there_before_it_is_read(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=1 << 20) as it:
        it.choose(1, [[4, 2]])
        faults = it.store.stats().faults
        assert it.expert_is_true(1, 4)
        assert it.expert_is_true(1, 2)
        assert it.store.stats().faults == faults == 0
        assert np.flatnonzero(it.store.resident()).tolist() == [EXPERTS + 2, EXPERTS + 4]


def test_the_coldest_goes_first(tmp_path: Path) -> None:
    index = model(tmp_path)
    expert = sum(5 * PAGE for _ in range(3))
    with opened(index, budget_bytes=2 * expert + 11 * PAGE) as it:
        it.choose(0, [[0, 1]])
        it.choose(0, [[0]])
        it.choose(0, [[3]])
        assert it.store.resident()[0]
        assert not it.store.resident()[1]
        assert it.store.resident()[3]
        assert it.store.stats().hit_experts == 1
        assert it.store.stats().missed_experts == 3


def test_what_is_used_often_outlives_what_was_used_last(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=30 * PAGE + 11 * PAGE) as it:
        for _ in range(12):
            it.choose(0, [[0]])
        it.choose(0, [[1]])
        it.choose(0, [[2]])
        assert it.store.resident()[[0, 1, 2]].tolist() == [True, False, True]


def test_what_is_expected_outlives_what_is_not(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=30 * PAGE + 11 * PAGE) as it:
        it.store.expect([4, 5])
        it.store.promote([5, 4])
        it.choose(0, [[1]])
        assert it.store.resident()[[1, 4, 5]].tolist() == [True, True, False]


def test_what_is_needed_now_is_no_victim_and_the_rest_is_streamed(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=30 * PAGE) as it:
        it.choose(2, [[0, 1], [2, 3], [4, 5]])
        assert all(it.expert_is_true(2, expert) for expert in range(EXPERTS))
        stats = it.store.stats()
        assert stats.overflows == 1
        assert stats.cached_bytes + stats.streamed_bytes <= 30 * PAGE


def test_prefill_never_evicts_what_decoding_holds(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=50 * PAGE) as it:
        for expert in range(EXPERTS):
            it.choose(0, [[expert]])
        held = np.flatnonzero(it.store.resident())
        for layer in (0, 1, 2):
            it.choose(layer, [[0, 1], [2, 3], [4, 5]], prefill=True)
            assert all(it.expert_is_true(layer, expert) for expert in range(EXPERTS))
        assert set(held) <= set(np.flatnonzero(it.store.resident()))
        assert it.store.stats().missed_experts == EXPERTS


def test_prefill_fills_a_cache_that_is_not_full_with_what_it_chose_most(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=150 * PAGE) as it:
        it.choose(0, [[5, 1], [5, 2], [5, 2]], prefill=True)
        assert {2, 5} <= set(np.flatnonzero(it.store.resident()).tolist())
        it.choose(0, [[5, 2]])
        assert it.store.stats().hit_experts == 2


def test_trunk_and_pinned_experts_stay(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=80 * PAGE) as it:
        assert it.store.promote_trunk() == it.index.trunk_bytes
        assert it.store.promote([7], pinned=True) == it.index.expert_sizes[1]
        for layer in range(LAYERS):
            for expert in range(EXPERTS):
                it.choose(layer, [[expert]])
        faults = it.store.stats().faults
        assert it.store.resident()[7]
        assert all(it.is_true(t.place) for t in it.index.tensors if t.group is Group.TRUNK)
        assert it.store.stats().faults == faults
        it.store.demote([7])
        assert not it.store.resident()[7]
        assert it.expert_is_true(1, 1)


def test_a_smaller_budget_is_lived_with_at_once(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=1 << 20) as it:
        it.store.promote(range(LAYERS * EXPERTS))
        it.store.resize(40 * PAGE)
        stats = it.store.stats()
        assert stats.cached_bytes + stats.pinned_bytes + stats.streamed_bytes <= 40 * PAGE
        assert it.everything_is_true()


def test_memory_that_runs_short_is_heeded_and_what_was_asked_for_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(model(tmp_path), budget_bytes=200 * PAGE) as it:
        it.store.promote(range(LAYERS * EXPERTS))
        monkeypatch.setattr(block, "look", lambda: Memory(1 << 30, 1 << 31, 100 * PAGE))
        assert "swapped" in (it.store.heed_memory() or "")
        assert it.store.stats().budget_bytes == 100 * PAGE
        assert it.store.stats().cached_bytes <= 100 * PAGE
        grown = it.store.heed_memory()  # nothing more went into swap since
        assert "free again" in (grown or "")
        assert it.store.stats().budget_bytes == 200 * PAGE


def test_the_number_of_mappings_does_not_grow(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=60 * PAGE) as it:
        before = mappings()
        for layer in range(LAYERS):
            for expert in range(EXPERTS):
                it.choose(layer, [[expert]])
        assert mappings() <= before + it.store.stats().errors


def test_several_shards_are_one_model(tmp_path: Path) -> None:
    with opened(model(tmp_path, shards=2), budget_bytes=60 * PAGE) as it:
        it.store.promote_trunk()
        it.choose(1, [[4, 2]])
        assert it.everything_is_true()


@pytest.mark.parametrize("slice_bytes", [64, 700, PAGE, PAGE + 1])
def test_tiny_experts_share_pages(tmp_path: Path, slice_bytes: int) -> None:
    with opened(model(tmp_path, slice_bytes=slice_bytes), budget_bytes=12 * PAGE) as it:
        for expert in (0, 3, 5, 1, 0):
            it.choose(0, [[expert]])
            assert it.expert_is_true(0, expert)
        assert it.everything_is_true()


def test_after_closing_the_file_is_mapped_again(tmp_path: Path) -> None:
    index = model(tmp_path)
    with opened(index, budget_bytes=1 << 20) as it:
        it.choose(0, [[1]])
        kept = it
    assert kept.everything_is_true()
    assert str(index.shards[0].path) in Path("/proc/self/maps").read_text()


def test_a_child_process_sees_no_zeros(tmp_path: Path) -> None:
    """Missing pages are not inherited: a forked child that read them would get zeros for weights."""
    with opened(model(tmp_path), budget_bytes=1 << 20) as it:
        offset = it.index.tensors[1].place.offset
        pid = os.fork()
        if pid == 0:
            faulthandler.disable()  # dying is what is expected of it
            os._exit(0 if it.maps[0][offset] == it.truth[0][offset] else 1)
        _, status = os.waitpid(pid, 0)
        assert not os.WIFEXITED(status) or os.waitstatus_to_exitcode(status) == 0
        assert os.WIFSIGNALED(status)


def test_a_file_that_is_not_mapped_is_refused(tmp_path: Path) -> None:
    index = model(tmp_path)
    with pytest.raises(Exception, match="is not mapped"):
        BlockStore.open(index, [index.shards[0].path], [True], budget_bytes=1 << 20)


def test_reads_stay_true_while_others_promote_and_demote(tmp_path: Path) -> None:
    with opened(model(tmp_path), budget_bytes=70 * PAGE, io_threads=2) as it:
        stop = threading.Event()
        wrong: list[int] = []

        def churn() -> None:
            rng = np.random.default_rng(3)
            while not stop.is_set():
                flats = rng.integers(0, LAYERS * EXPERTS, 4).tolist()
                it.store.promote(flats)
                it.store.demote(flats[:3])

        def read() -> None:
            for _ in range(30):
                wrong.append(0 if it.everything_is_true() else 1)

        threads = [threading.Thread(target=churn), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        threads[1].join()
        stop.set()
        threads[0].join()
        assert not any(wrong)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("choose"),
            st.integers(0, LAYERS - 1),
            st.lists(
                st.lists(st.integers(0, EXPERTS - 1), min_size=USED, max_size=USED, unique=True), min_size=1, max_size=4
            ),
            st.booleans(),
        ),
        st.tuples(st.just("promote"), st.integers(0, LAYERS * EXPERTS - 1), st.booleans()),
        st.tuples(st.just("demote"), st.integers(0, LAYERS * EXPERTS - 1)),
        st.tuples(st.just("resize"), st.integers(4, 200)),
        st.tuples(st.just("read"), st.integers(0, LAYERS - 1), st.integers(0, EXPERTS - 1)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(
    steps=STEPS, slice_bytes=st.sampled_from([64, 1500, PAGE, 2 * PAGE + 40, 3 * PAGE + 500]), pages=st.integers(4, 200)
)
def test_no_order_of_things_makes_a_byte_wrong(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], slice_bytes: int, pages: int
) -> None:
    with opened(model(tmp_path_factory.mktemp("toy"), slice_bytes=slice_bytes), budget_bytes=pages * PAGE) as it:
        for step in steps:
            match step:
                case ("choose", layer, rows, prefill):
                    it.choose(layer, rows, prefill=prefill)
                    assert all(it.expert_is_true(layer, expert) for row in rows for expert in row)
                case ("promote", flat, pinned):
                    it.store.promote([flat], pinned=pinned)
                case ("demote", flat):
                    it.store.demote([flat])
                case ("resize", count):
                    it.store.resize(count * PAGE)
                case ("read", layer, expert):
                    assert it.expert_is_true(layer, expert)
        assert it.everything_is_true()
        assert it.store.stats().errors == 0
