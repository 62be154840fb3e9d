"""What a plan makes each tier read for a token, and how fast that could be. Knows sizes and heat, measures nothing.

The KV cache is left out: what it reads grows with each answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optaned.domain.model import Group, ModelIndex
from optaned.domain.tiers import PlacementPlan, TierInfo
from optaned.placement.arrays import Floats
from optaned.placement.fill import shard_homes
from optaned.placement.reads import read_bytes


@dataclass(frozen=True, slots=True)
class TierRead:
    """Bytes that a decoded token reads from one tier, on average."""

    tier: str
    trunk_bytes: float
    expert_bytes: float

    @property
    def size_bytes(self) -> float:
        return self.trunk_bytes + self.expert_bytes


@dataclass(frozen=True, slots=True)
class Forecast:
    """One entry a tier, in the tiers' order; `hit_share` is the share of routed bytes that are not read from home."""

    reads: tuple[TierRead, ...]
    hit_share: float

    @property
    def size_bytes(self) -> float:
        return sum(read.size_bytes for read in self.reads)

    def tokens_per_second(self, tiers: Sequence[TierInfo]) -> float | None:
        """Return the speed where memory binds and tiers are read one after another; None while a bandwidth is unknown.

        Where computing binds, no placement makes it faster: a forecast for people says both.
        """
        gbps = {tier.name: tier.read_gbps for tier in tiers}
        seconds = 0.0
        for read in self.reads:
            if not read.size_bytes:
                continue
            speed = gbps.get(read.tier)
            if speed is None:
                return None
            seconds += read.size_bytes / (speed * 1e9)
        return 1 / seconds if seconds else None


def forecast(
    index: ModelIndex, plan: PlacementPlan, tiers: Sequence[TierInfo], frequency: ArrayLike | None = None
) -> Forecast:
    """Return what a token reads from each tier. `frequency` is uses a token by flat number; None takes all experts alike."""
    homes = shard_homes(index, tiers)
    trunk, experts = dict.fromkeys((t.name for t in tiers), 0.0), dict.fromkeys((t.name for t in tiers), 0.0)
    reads = read_bytes(index)
    moved = {number: part.tier for part in plan.promotions for number in part.tensors}
    for number, tensor in enumerate(index.tensors):
        if tensor.group is Group.TRUNK:
            trunk[moved.get(number, homes[tensor.place.shard])] += reads[number]
    uses = _uses(index, frequency)
    promoted = 0.0
    for part in plan.promotions:
        if part.experts:
            read = _take(index, uses, part.experts)
            experts[part.tier] += read
            promoted += read
    for row, layer in enumerate(index.expert_layers):
        left = float(uses[row].sum())
        for place in index.expert_ranges(layer, 0):
            experts[homes[place.shard]] += left * place.size_bytes
    total = sum(experts.values())
    return Forecast(
        tuple(TierRead(tier.name, trunk[tier.name], experts[tier.name]) for tier in tiers),
        promoted / total if total else 0.0,
    )


def _uses(index: ModelIndex, frequency: ArrayLike | None) -> Floats:
    """Return uses a token in rows of layers, each row scaled to the experts that a token uses there."""
    shape = (len(index.expert_layers), index.expert_count)
    given = np.zeros(shape) if frequency is None else np.array(frequency, dtype=np.float64).reshape(shape)
    given[given.sum(axis=1) <= 0] = 1.0
    return np.asarray(given * (index.expert_used_count / given.sum(axis=1, keepdims=True)))


def _take(index: ModelIndex, uses: Floats, experts: Sequence[int]) -> float:
    """Return the bytes a token reads of these experts, and take their uses out of `uses`."""
    flat = np.asarray(experts, dtype=np.int64)
    rows = flat // index.expert_count
    sizes = np.asarray(index.expert_sizes, dtype=np.float64)
    read = float((uses.ravel()[flat] * sizes[rows]).sum())
    uses[rows, flat % index.expert_count] = 0.0
    return read
