"""Residency for block homes: the native store through ctypes. Knows the model's pieces and where its shards are mapped.

The store takes the shards' mappings over and fills them as the router chooses: see `_block.c`. It is opened after the
library has mapped the model and before anything is evaluated, and closed before the model is freed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from optaned.domain.model import ModelIndex
from optaned.errors import UnavailableError
from optaned.residency.cliff import look, next_step
from optaned.residency.maps import MappedFile, Mapping, find_mappings
from optaned.residency.pieces import Int32, Pieces, cut_into_pieces

# Measured on a disk of 1.5 GB/s: see `bench/overcommit.py`.
DEFAULT_IO_THREADS = 4
CHUNK_BYTES = 512 << 10
_STREAM_SHARE = 16  # a sixteenth of what the experts have is kept for prefill's misses
_PAGE = 4096
_P, _I32, _U64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64


@runtime_checkable
class Announces(Protocol):
    """A model that tells a C function of each choice of its router, before the chosen experts are read.

    The function's type is `void (*)(void *data, int layer, const int32_t *ids, int n_used, int n_tokens, size_t stride,
    int is_prefill)`. `on_choice` returns False where no router is watched; function 0 ends it.
    """

    def on_choice(self, function: int, data: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Totals since the store was opened, and what it holds now. Experts and `hit`/`missed` bytes are decoding's alone."""

    hit_experts: int
    missed_experts: int
    hit_bytes: int
    missed_bytes: int
    prefill_hit_bytes: int
    prefill_missed_bytes: int
    bytes_read: int
    waited_ns: int
    faults: int
    evicted_bytes: int
    errors: int
    pinned_bytes: int
    cached_bytes: int
    streamed_bytes: int
    budget_bytes: int
    overflows: int


class _Stats(ctypes.Structure):
    _fields_ = tuple((name, _U64) for name in BlockStats.__dataclass_fields__)


class _Opening(ctypes.Structure):
    _fields_ = (
        *((name, _I32) for name in ("shards", "pieces", "layers", "rows", "experts", "parts", "threads")),
        *((name, _U64) for name in ("budget", "stream_reserve", "chunk_size")),
        ("paths", ctypes.POINTER(ctypes.c_char_p)),
        *((name, _P) for name in ("bases", "lows", "highs", "offsets", "sizes")),
        *((name, _P) for name in ("piece_shards", "row_of_layer", "first", "members")),
    )


def refusal() -> str | None:
    """Return why this process cannot have a block store, None when it can."""
    native = _native()
    if native is None:
        return "the native block store was not built; install a C compiler and reinstall optaned"
    error = native.block_refusal()
    if error:
        return (
            f"userfaultfd is refused ({os.strerror(error)}); allow that system call, or move the model to a faster tier"
        )
    return None


class BlockStore:
    """The resident part of a model on block homes. Its methods may be called from any thread; `close` by the owner."""

    def __init__(self, native: ctypes.CDLL, store: int, pieces: Pieces, *, index: ModelIndex, asked_bytes: int) -> None:
        self._native = native
        self._store = store
        self._asked_bytes = asked_bytes
        self._swapped_bytes = 0
        self._pieces = pieces
        self._trunk = pieces.of_tensors(range(len(index.tensors)))
        self._mean_uses = index.expert_used_count / max(1, index.expert_count)
        self.hook_function: int = native.block_hook()
        self.hook_data = store

    @classmethod
    def open(
        cls,
        index: ModelIndex,
        files: Sequence[Path],
        on_block: Sequence[bool],
        *,
        budget_bytes: int,
        io_threads: int = DEFAULT_IO_THREADS,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> BlockStore:
        """Take over the mappings of those loaded `files` for which `on_block` is true.

        `budget_bytes` is all that may be resident: trunk, experts and what is streamed. Nothing may read the model
        meanwhile. Raises UnavailableError in one line, with the mappings as they were.
        """
        why = refusal()
        native = _native()
        if why is not None or native is None:
            raise UnavailableError(f"{files[0]}: {why}")
        pieces = cut_into_pieces(index, on_block)
        request = _Request(index, pieces, _mappings(files, on_block), files)
        request.opening.threads, request.opening.chunk_size = io_threads, chunk_bytes
        request.opening.budget, request.opening.stream_reserve = budget_bytes, _reserve(budget_bytes, pieces)
        error = ctypes.c_int(0)
        store = native.block_open(ctypes.byref(request.opening), ctypes.byref(error))
        if not store:
            raise UnavailableError(f"{files[0]}: its mapping cannot be taken over: {os.strerror(error.value)}")
        return cls(native, store, pieces, index=index, asked_bytes=budget_bytes)

    def attach(self, model: Announces) -> bool:
        """Have a model's router announce its choices to this store; False when it cannot: then reads go through faults."""
        return model.on_choice(self.hook_function, self.hook_data)

    def promote_trunk(self, tensors: Sequence[int] | None = None) -> int:
        """Read trunk tensors (all of them for None) and keep them; returns how many bytes are resident of it now."""
        return self._bring(self._trunk if tensors is None else self._pieces.of_tensors(tensors), pinned=True)

    def promote(self, flats: Sequence[int], *, pinned: bool = False) -> int:
        """Read experts, in this order, as far as they fit; returns their resident bytes. `pinned` ones stay."""
        return self._bring(self._pieces.of_experts(flats), pinned=pinned)

    def expect(self, flats: Sequence[int]) -> None:
        """Say which experts are expected to be used, most first, until decoding has shown it. Reads nothing.

        The first of them is taken to be used twice as often as the mean, the last hardly at all.
        """
        numbers = np.ascontiguousarray(flats, np.int32)
        uses = np.linspace(2 * self._mean_uses, 0, len(numbers), dtype=np.float32)
        self._native.block_expect(self._store, numbers.ctypes.data, uses.ctypes.data, len(numbers))

    def demote(self, flats: Sequence[int]) -> None:
        """Let experts go home, pinned ones too."""
        self._release(self._pieces.of_experts(flats), only_unpin=False)

    def unpin(self, flats: Sequence[int]) -> None:
        """Let experts be victims again."""
        self._release(self._pieces.of_experts(flats), only_unpin=True)

    def resize(self, budget_bytes: int) -> None:
        """Live with another budget from now on; what no longer fits goes home at once."""
        self._asked_bytes = budget_bytes
        self._resize(budget_bytes)

    def heed_memory(self) -> str | None:
        """Look at the machine's memory and hold less, or more again up to what was asked for; say so when it does."""
        memory = look()
        if memory is None:
            return None
        new_bytes = max(0, memory.swapped_bytes - self._swapped_bytes)
        self._swapped_bytes = memory.swapped_bytes
        now = self.stats()
        held_bytes = now.pinned_bytes + now.cached_bytes + now.streamed_bytes
        step = next_step(now.budget_bytes, self._asked_bytes, held_bytes, replace(memory, swapped_bytes=new_bytes))
        if step is None:
            return None
        self._resize(step.budget_bytes)
        return step.reason

    def _resize(self, budget_bytes: int) -> None:
        self._native.block_resize(self._store, budget_bytes, _reserve(budget_bytes, self._pieces))

    def resident(self) -> NDArray[np.bool_]:
        """Return for each flat expert whether all of it is resident."""
        found = np.empty(len(self._pieces.sizes), np.uint8)
        self._native.block_resident(self._store, found.ctypes.data)
        return self._pieces.whole_experts(found.astype(bool))

    def stats(self) -> BlockStats:
        """Return totals and what is held; cheap."""
        found = _Stats()
        self._native.block_stats(self._store, ctypes.byref(found))
        return BlockStats(*(getattr(found, name) for name, *_ in _Stats._fields_))

    def close(self) -> None:
        """Put the files back under their mappings and free everything. Nothing may read the model, nothing announce."""
        store, self._store = self._store, 0
        if store:
            self._native.block_close(store)

    def _bring(self, pieces: Int32, *, pinned: bool) -> int:
        wanted = np.ascontiguousarray(pieces, np.int32)
        count = self._native.block_bring(self._store, wanted.ctypes.data, len(wanted), pinned)
        if count < 0:
            raise UnavailableError(f"weights cannot be read from their home: {os.strerror(-count)}")
        return int(self._pieces.sizes[wanted[:count]].sum())

    def _release(self, pieces: Int32, *, only_unpin: bool) -> None:
        wanted = np.ascontiguousarray(pieces, np.int32)
        self._native.block_release(self._store, wanted.ctypes.data, len(wanted), only_unpin)


class _Request:
    """The native call's argument, and everything that it points to."""

    def __init__(
        self, index: ModelIndex, pieces: Pieces, mappings: Sequence[Mapping | None], files: Sequence[Path]
    ) -> None:
        shards = len(files)
        layers = 1 + max(index.expert_layers, default=-1)
        rows = np.full(layers, -1, np.int32)
        rows[list(index.expert_layers)] = np.arange(len(index.expert_layers))
        bases, lows, highs = (np.zeros(shards, np.uint64) for _ in range(3))
        paths = (ctypes.c_char_p * shards)()
        for shard, mapping in enumerate(mappings):
            own = np.flatnonzero(pieces.shards == shard)
            if mapping is None or not len(own):
                continue
            low = int(pieces.offsets[own[0]]) // _PAGE * _PAGE
            high = -(-int(pieces.offsets[own[-1]] + pieces.sizes[own[-1]]) // _PAGE) * _PAGE
            if low < mapping.offset or high > mapping.end:
                raise UnavailableError(f"{files[shard]}: is not mapped as a whole; load it with mmap and without a GPU")
            bases[shard], lows[shard], highs[shard] = mapping.address_of(0), low, high
            paths[shard] = os.fsencode(files[shard])
        arrays = {
            "bases": bases,
            "lows": lows,
            "highs": highs,
            "offsets": pieces.offsets,
            "sizes": pieces.sizes,
            "piece_shards": pieces.shards,
            "row_of_layer": rows,
            "first": pieces.first,
            "members": pieces.members,
        }
        self._kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        self.opening = _Opening(
            shards=shards,
            pieces=len(pieces.sizes),
            layers=layers,
            rows=len(index.expert_layers),
            experts=index.expert_count,
            parts=pieces.parts,
            paths=paths,
            **{name: array.ctypes.data for name, array in self._kept.items()},
        )


def _reserve(budget_bytes: int, pieces: Pieces) -> int:
    """Return what is kept for streaming: two pieces at least, the one that is read and the one that comes in."""
    largest = int(pieces.sizes.max(initial=0)) + 2 * _PAGE
    return min(max(budget_bytes // _STREAM_SHARE, 2 * largest), budget_bytes // 2)


def _mappings(files: Sequence[Path], on_block: Sequence[bool]) -> list[Mapping | None]:
    """Return each block shard's one mapping."""
    found: list[Mapping | None] = [None] * len(files)
    numbers = [number for number, block in enumerate(on_block) if block]
    wanted = [MappedFile(files[n].resolve(), files[n].stat().st_ino) for n in numbers]
    maps = Path("/proc/self/maps").read_text()
    for mapping in find_mappings(maps, wanted):
        number = numbers[mapping.file]
        if found[number] is not None:
            raise UnavailableError(f"{files[number]}: is mapped in several parts; load it without a GPU")
        found[number] = mapping
    return found


def _native() -> Any:
    """Return the native part with its functions declared, None where it was not built."""
    found = importlib.util.find_spec("optaned.residency._block")
    if found is None or found.origin is None:
        return None
    native = ctypes.CDLL(found.origin)
    for name, result, arguments in (
        ("block_refusal", ctypes.c_int, ()),
        ("block_open", _P, (_P, _P)),
        ("block_close", None, (_P,)),
        ("block_hook", _P, ()),
        ("block_bring", _I32, (_P, _P, _I32, _I32)),
        ("block_release", None, (_P, _P, _I32, _I32)),
        ("block_expect", None, (_P, _P, _P, _I32)),
        ("block_resize", None, (_P, _U64, _U64)),
        ("block_resident", None, (_P, _P)),
        ("block_stats", None, (_P, _P)),
    ):
        function = getattr(native, name)
        function.restype, function.argtypes = result, arguments
    return native
