"""The book of what is resident where: which experts and trunk tensors, how many bytes, how many hits. Moves nothing.

Knows the index and the tiers' budgets, numpy and no clock. Experts go by their flat numbers (`ModelIndex.expert_layers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optaned.domain.model import ByteRange, Group, ModelIndex
from optaned.engine.messages import TierSpec, TierUse

HOME = -1


@dataclass(slots=True)
class _Totals:
    """What has happened to one tier since the engine opened."""

    promoted_bytes: int = 0
    demoted_bytes: int = 0
    hit_bytes: int = 0


@dataclass(slots=True)
class _Homes:
    """What each home tier holds: bytes of each trunk tensor's home and of one expert of each layer."""

    names: tuple[str, ...]
    of_tensor: dict[int, int] = field(default_factory=dict)
    expert_bytes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))


class Residents:
    """Tiers are numbered as in `tiers`; what is in none of them is read from home."""

    def __init__(self, index: ModelIndex, tiers: Sequence[TierSpec], home_tiers: Sequence[str]) -> None:
        self.index = index
        self.tiers = tuple(tiers)
        rows, experts = len(index.expert_layers), index.expert_count
        self.sizes: NDArray[np.int64] = np.repeat(np.asarray(index.expert_sizes, np.int64), experts)
        self.tier_of_expert: NDArray[np.int16] = np.full(rows * experts, HOME, np.int16)
        # By hand: what must stay, and what must stay out.
        self.pinned: NDArray[np.bool_] = np.zeros(rows * experts, np.bool_)
        self.barred: NDArray[np.bool_] = np.zeros(rows * experts, np.bool_)
        self._tier_of_tensor: dict[int, int] = {}
        self._totals = [_Totals() for _ in tiers]
        self._homes = _homes(index, home_tiers)
        self._home_hits = np.zeros(len(self._homes.names), np.float64)
        self.routed_bytes = 0

    @property
    def resident(self) -> NDArray[np.bool_]:
        """Say of each expert whether it is in a faster tier than home."""
        return np.not_equal(self.tier_of_expert, HOME)

    @property
    def has_experts(self) -> bool:
        return self.sizes.size > 0

    def ranges(self, flat: int) -> tuple[ByteRange, ...]:
        """Return the bytes of an expert."""
        return self.index.expert_ranges(*self.index.flat_expert(flat))

    def tensor_bytes(self, tensor: int) -> int:
        return self.index.tensors[tensor].place.size_bytes

    def trunk_bytes(self, tier: int) -> int:
        """Return the bytes of trunk tensors that are resident in a tier."""
        return sum(self.tensor_bytes(number) for number, place in self._tier_of_tensor.items() if place == tier)

    def expert_bytes(self, tier: int) -> int:
        """Return the bytes of experts that are resident in a tier."""
        return int(self.sizes[self.tier_of_expert == tier].sum())

    def left_bytes(self, tier: int) -> int:
        """Return what of a tier's budget is not taken."""
        return self.tiers[tier].budget_bytes - self.trunk_bytes(tier) - self.expert_bytes(tier)

    # ---- what happened -----------------------------------------------------------------------------------------------

    def tensor_arrived(self, tensor: int, tier: int) -> None:
        self._tier_of_tensor[tensor] = tier
        self._totals[tier].promoted_bytes += self.tensor_bytes(tensor)

    def expert_arrived(self, flat: int, tier: int) -> None:
        self.tier_of_expert[flat] = tier
        self._totals[tier].promoted_bytes += int(self.sizes[flat])

    def expert_left(self, flat: int) -> None:
        tier = int(self.tier_of_expert[flat])
        self.tier_of_expert[flat] = HOME
        self._totals[tier].demoted_bytes += int(self.sizes[flat])

    def used(self, counts: NDArray[np.int64]) -> None:
        """Count how often each expert (flat) was read: which tier the bytes came from."""
        read = counts * self.sizes
        self.routed_bytes += int(read.sum())
        for number, total in enumerate(self._totals):
            total.hit_bytes += int(read[self.tier_of_expert == number].sum())
        if self._homes.names and self.has_experts:
            missed = np.where(self.resident, 0, counts).reshape(len(self.index.expert_layers), -1).sum(axis=1)
            self._home_hits += missed @ self._homes.expert_bytes

    # ---- what is told ------------------------------------------------------------------------------------------------

    def uses(self) -> tuple[TierUse, ...]:
        """Return every tier's part, those that take promoted bytes first."""
        fast = [
            TierUse(
                name=spec.name,
                budget_bytes=spec.budget_bytes,
                trunk_bytes=self.trunk_bytes(number),
                expert_bytes=self.expert_bytes(number),
                experts=int((self.tier_of_expert == number).sum()),
                promoted_bytes_total=self._totals[number].promoted_bytes,
                demoted_bytes_total=self._totals[number].demoted_bytes,
                hit_bytes_total=self._totals[number].hit_bytes,
            )
            for number, spec in enumerate(self.tiers)
        ]
        return (*fast, *self._home_uses())

    def _home_uses(self) -> list[TierUse]:
        homes = self._homes
        trunk = np.zeros(len(homes.names), np.int64)
        for tensor, home in homes.of_tensor.items():
            if tensor not in self._tier_of_tensor:
                trunk[home] += self.tensor_bytes(tensor)
        expert = experts = np.zeros(len(homes.names), np.int64)
        if self.has_experts:
            at_home = (~self.resident).reshape(len(self.index.expert_layers), -1).sum(axis=1)
            # An expert whose tensors lie on two homes is counted on both.
            expert, experts = at_home @ homes.expert_bytes, at_home @ (homes.expert_bytes > 0)
        return [
            TierUse(
                name=name,
                budget_bytes=0,
                trunk_bytes=int(trunk[number]),
                expert_bytes=int(expert[number]),
                experts=int(experts[number]),
                hit_bytes_total=int(self._home_hits[number]),
            )
            for number, name in enumerate(homes.names)
        ]


def _homes(index: ModelIndex, home_tiers: Sequence[str]) -> _Homes:
    """Return what lies on which home; `home_tiers` names each shard's."""
    if len(home_tiers) != len(index.shards):
        return _Homes(())
    names = tuple(dict.fromkeys(home_tiers))
    rows = {layer: row for row, layer in enumerate(index.expert_layers)}
    homes = _Homes(names, expert_bytes=np.zeros((len(rows), len(names)), np.int64))
    for number, tensor in enumerate(index.tensors):
        home = names.index(home_tiers[tensor.place.shard])
        if tensor.group is Group.TRUNK:
            homes.of_tensor[number] = home
        elif tensor.layer is not None:
            homes.expert_bytes[rows[tensor.layer], home] += tensor.place.size_bytes // index.expert_count
    return homes
