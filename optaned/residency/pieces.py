"""A model cut into pieces, the units in which a block home is read: sorted by place, experts as lists of them. Pure.

A piece is at most 4 MiB of one expert's slice of a tensor, or of a trunk tensor. K3's 82,432 experts are about 250,000
pieces, so that everything here is arrays; there is no loop over experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optaned.domain.model import Group, ModelIndex, Tensor

MOST_PIECE_BYTES = 4 << 20
# The order in which a layer's expert tensors are read. Only streaming asks: a wrong guess costs reads, never bytes.
_USED_LAST = ("up", "gate", "down")

Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Pieces:
    """Pieces by place, and what they belong to.

    `offsets`, `sizes` (bytes) and `shards` are by piece number. The pieces of part `k` of flat expert `f` are
    `members[first[f * parts + k]:first[f * parts + k + 1]]`; those of trunk tensor number `t` are `trunk[t]`.
    """

    offsets: UInt64
    sizes: UInt64
    shards: Int32
    parts: int
    first: Int32
    members: Int32
    trunk: dict[int, Int32]

    def of_experts(self, flats: Sequence[int]) -> Int32:
        """Return the pieces of experts, in the experts' order."""
        ends = self.first[:: self.parts]
        chosen = [self.members[ends[flat] : ends[flat + 1]] for flat in flats]
        return np.concatenate(chosen) if chosen else np.zeros(0, np.int32)

    def of_tensors(self, tensors: Sequence[int]) -> Int32:
        """Return the pieces of trunk tensors, by number in the index; tensors that are not on a block home have none."""
        chosen = [self.trunk[number] for number in tensors if number in self.trunk]
        return np.concatenate(chosen) if chosen else np.zeros(0, np.int32)

    def whole_experts(self, resident: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return for each flat expert whether all of its pieces are resident. False for one without pieces."""
        ends = self.first[:: self.parts]
        missing = np.concatenate([[0], np.cumsum(~resident[self.members])])
        return np.asarray((missing[ends[1:]] == missing[ends[:-1]]) & (ends[1:] > ends[:-1]))


def cut_into_pieces(index: ModelIndex, on_block: Sequence[bool]) -> Pieces:
    """Return the pieces of everything that lies on the shards for which `on_block` is true."""
    slices: list[_Slices] = []
    for number, tensor in enumerate(index.tensors):
        if on_block[tensor.place.shard] and tensor.place.size_bytes:
            slices.append(_cut(index, number, tensor))
    offsets, sizes, shards = (
        _joined([getattr(one, name) for one in slices]) for name in ("offsets", "sizes", "shards")
    )
    order = np.lexsort((offsets, shards))
    number_of = np.empty(len(order), np.int32)
    number_of[order] = np.arange(len(order), dtype=np.int32)
    cells = _joined([one.cells for one in slices])
    parts = max((one.part for one in slices), default=0) + 1
    routed = np.flatnonzero(cells >= 0)
    routed = routed[
        np.lexsort((offsets[routed], cells[routed] * parts + _joined([one.parts for one in slices])[routed]))
    ]
    cell = cells[routed] * parts + _joined([one.parts for one in slices])[routed]
    count = len(index.expert_layers) * index.expert_count * parts
    first = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=count))]).astype(np.int32)
    ends = np.cumsum([len(one.offsets) for one in slices])
    trunk = {
        one.tensor: number_of[end - len(one.offsets) : end]
        for one, end in zip(slices, ends.tolist(), strict=True)
        if one.cells[0] < 0
    }
    return Pieces(
        offsets[order].astype(np.uint64),
        sizes[order].astype(np.uint64),
        shards[order].astype(np.int32),
        parts,
        first,
        number_of[routed],
        trunk,
    )


@dataclass(frozen=True)
class _Slices:
    """One tensor's pieces; `cells` are flat experts, -1 for the trunk."""

    tensor: int
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    shards: NDArray[np.int64]
    cells: NDArray[np.int64]
    parts: NDArray[np.int64]
    part: int


def _cut(index: ModelIndex, number: int, tensor: Tensor) -> _Slices:
    is_expert = tensor.group is Group.EXPERT and tensor.layer is not None
    count = index.expert_count if is_expert else 1
    whole = tensor.place.size_bytes // count
    cuts = -(-whole // MOST_PIECE_BYTES)
    edges = np.arange(cuts + 1, dtype=np.int64) * whole // cuts
    starts = tensor.place.offset + whole * np.arange(count, dtype=np.int64)
    offsets = (starts[:, None] + edges[:-1]).ravel()
    sizes = np.tile(np.diff(edges), count)
    if is_expert and tensor.layer is not None:
        row = index.expert_layers.index(tensor.layer)
        cells = np.repeat(row * count + np.arange(count, dtype=np.int64), cuts)
        part = _part(index, tensor)
    else:
        cells, part = np.full(cuts, -1, np.int64), 0
    shards = np.full(len(offsets), tensor.place.shard, np.int64)
    return _Slices(number, offsets, sizes, shards, cells, np.full(len(offsets), part, np.int64), part)


def _part(index: ModelIndex, tensor: Tensor) -> int:
    """Return a tensor's place in the order in which its layer reads its expert tensors."""
    layer = [t for t in index.tensors if t.layer == tensor.layer and t.group is Group.EXPERT]
    return sorted(layer, key=lambda t: (_use(t.name), t.place.shard, t.place.offset)).index(tensor)


def _use(name: str) -> int:
    return next((rank for rank, word in enumerate(_USED_LAST) if f"{word}_exps" in name), 0)


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
