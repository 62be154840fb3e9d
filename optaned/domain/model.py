"""A model as files hold it: shards, tensors, which bytes every token reads (trunk), which the router picks (expert)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any


class Group(enum.StrEnum):
    TRUNK = "trunk"
    EXPERT = "expert"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `offset` to `offset + size_bytes` of shard number `shard`."""

    shard: int
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class Shard:
    """One GGUF file. `data_offset` is where its tensors begin, `real_path` where it lies once links are followed."""

    path: Path
    size_bytes: int
    data_offset: int
    real_path: Path | None = None

    @property
    def lies_at(self) -> Path:
        return self.real_path or self.path


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's name, shape (fastest dimension first), GGML type name and place. `layer` None: not of a layer."""

    name: str
    shape: tuple[int, ...]
    type: str
    place: ByteRange
    layer: int | None
    group: Group


@dataclass(frozen=True)
class ModelIndex:
    """All headers of a model. `digest` names its content (headers, sizes, sampled blocks).

    `metadata` has scalars, and short arrays of numbers as tuples; vocabularies are left out.
    """

    architecture: str
    name: str
    shards: tuple[Shard, ...]
    tensors: tuple[Tensor, ...]
    digest: str
    layers: int
    expert_count: int = 0
    expert_used_count: int = 0
    trained_context: int = 0
    quantization: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(t.place.size_bytes for t in self.tensors)

    @property
    def trunk_bytes(self) -> int:
        return sum(t.place.size_bytes for t in self.tensors if t.group is Group.TRUNK)

    @property
    def expert_bytes(self) -> int:
        return self.size_bytes - self.trunk_bytes

    def expert_ranges(self, layer: int, expert: int) -> tuple[ByteRange, ...]:
        """Return the slices of expert number `expert` in `layer`, one a fused tensor."""
        if not 0 <= expert < self.expert_count:
            raise IndexError(f"expert {expert} of {self.expert_count}")
        found = []
        for place in self._expert_places.get(layer, ()):
            size = place.size_bytes // self.expert_count
            found.append(ByteRange(place.shard, place.offset + expert * size, size))
        return tuple(found)

    @cached_property
    def expert_layers(self) -> tuple[int, ...]:
        """Return the layers that have routed experts, in order.

        Expert `e` of the layer at place `row` here has the flat number `row * expert_count + e`: heat, scores and moves
        are arrays over flat numbers.
        """
        return tuple(sorted(layer for layer in self._expert_places if layer is not None))

    def flat_expert(self, flat: int) -> tuple[int, int]:
        """Return (layer, expert) of a flat number."""
        row, expert = divmod(flat, self.expert_count)
        return self.expert_layers[row], expert

    @cached_property
    def expert_sizes(self) -> tuple[int, ...]:
        """Return the bytes of one expert of each layer of `expert_layers` (quantizations differ from layer to layer)."""
        return tuple(sum(r.size_bytes for r in self.expert_ranges(layer, 0)) for layer in self.expert_layers)

    def group_bytes(self, group: Group) -> int:
        """Return the bytes of one group."""
        return self.trunk_bytes if group is Group.TRUNK else self.expert_bytes

    @cached_property
    def _expert_places(self) -> dict[int | None, list[ByteRange]]:
        """Fused expert tensors by layer, kept: a planner asks for each of K3's 82,432 experts."""
        places: dict[int | None, list[ByteRange]] = {}
        for tensor in self.tensors:
            if tensor.group is Group.EXPERT:
                places.setdefault(tensor.layer, []).append(tensor.place)
        return places
