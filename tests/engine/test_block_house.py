"""A house on block homes: what the store is asked for, and how its figures are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from optaned.api import ByteRange, Group, ModelIndex, PlacementPlan, PlanRequest, Shard, Tensor, UnavailableError
from optaned.engine.block_house import BlockHouse
from optaned.engine.house import GivenUpError
from optaned.engine.learning import Learning
from optaned.engine.messages import Move, Promotion, TierSpec
from optaned.placement.heat import Heat
from optaned.residency.block import BlockStats

EXPERTS, EXPERT_BYTES, TRUNK_BYTES = 8, 100, 50


def paper_index() -> ModelIndex:
    trunk = Tensor("output.weight", (TRUNK_BYTES,), "I8", ByteRange(0, 0, TRUNK_BYTES), None, Group.TRUNK)
    place = ByteRange(0, 1000, EXPERTS * EXPERT_BYTES)
    experts = Tensor("blk.0.ffn_up_exps.weight", (EXPERT_BYTES, EXPERTS), "I8", place, 0, Group.EXPERT)
    return ModelIndex("p", "p", (Shard(Path("/n/m"), 9999, 0),), (trunk, experts), "d", 1, EXPERTS, 2)


@dataclass
class FakeStore:
    """Holds what fits `budget_bytes`, the first come; breaks once `broken`."""

    budget_bytes: int
    broken: bool = False
    trunk: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    pinned: set[int] = field(default_factory=set)
    expected: list[int] = field(default_factory=list)
    evicted_bytes: int = 0
    memory_says: str | None = None

    @property
    def used_bytes(self) -> int:
        return TRUNK_BYTES * len(self.trunk) + EXPERT_BYTES * len(self.held)

    def promote_trunk(self, tensors: Sequence[int] | None = None) -> int:
        if self.broken:
            raise UnavailableError("weights cannot be read from their home: input/output error")
        fitting = [t for t in tensors or () if self.used_bytes + TRUNK_BYTES <= self.budget_bytes]
        self.trunk += fitting
        return TRUNK_BYTES * len(fitting)

    def promote(self, flats: Sequence[int], *, pinned: bool = False) -> int:
        for flat in flats:
            if self.used_bytes + EXPERT_BYTES <= self.budget_bytes:
                self.held.append(flat)
                if pinned:
                    self.pinned.add(flat)
        return EXPERT_BYTES * len(self.held)

    def expect(self, flats: Sequence[int]) -> None:
        self.expected = list(flats)

    def demote(self, flats: Sequence[int]) -> None:
        self.evicted_bytes += EXPERT_BYTES * len(set(self.held) & set(flats))
        self.held = [flat for flat in self.held if flat not in flats]
        self.pinned -= set(flats)

    def unpin(self, flats: Sequence[int]) -> None:
        self.pinned -= set(flats)

    def heed_memory(self) -> str | None:
        return self.memory_says

    def resident(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(EXPERTS), self.held)

    def stats(self) -> BlockStats:
        figures = dict.fromkeys(BlockStats.__dataclass_fields__, 0)
        figures |= {"hit_bytes": 700, "missed_bytes": 300, "bytes_read": self.used_bytes}
        figures |= {"evicted_bytes": self.evicted_bytes, "budget_bytes": self.budget_bytes}
        return BlockStats(**figures)


class Hottest:
    """Scores by frequency."""

    def plan(self, request: PlanRequest) -> PlacementPlan:
        raise NotImplementedError

    def score(self, stats: Any) -> Any:
        return stats.frequency


def learning(*hot: int) -> Learning:
    counts = np.zeros(EXPERTS)
    counts[list(hot)] = range(len(hot), 0, -1)
    heat = Heat.cold(EXPERTS).observe(counts, 10) if hot else None
    return Learning(paper_index(), object(), policy=Hottest(), heat=heat)


def open_house(budget_bytes: int = 360, **store: Any) -> tuple[BlockHouse, FakeStore]:
    fake = FakeStore(budget_bytes, **store)
    tier = TierSpec(name="dram0", driver="memory", options={}, numa_node=None, budget_bytes=budget_bytes)
    return BlockHouse(paper_index(), fake, tier, ("nvme",)), fake


PLAN = (Promotion("dram0", (0,), (5,)),)


def test_the_trunk_is_read_first_then_experts_by_saved_heat_as_far_as_the_budget_goes() -> None:
    home, store = open_house()
    home.settle(PLAN, learning(7, 1, 3, 2), lambda _fraction, _text: True)
    assert (store.trunk, store.held) == ([0], [7, 1, 3])
    fast, nvme = home.uses()
    assert (fast.trunk_bytes, fast.expert_bytes, fast.experts, fast.promoted_bytes_total) == (50, 300, 3, 350)
    assert (nvme.trunk_bytes, nvme.expert_bytes, nvme.hit_bytes_total) == (0, 500, 300)
    assert (fast.hit_bytes_total, home.routed_bytes) == (700, 1000)


def test_without_heat_the_plan_says_which_experts_come() -> None:
    home, store = open_house()
    home.settle(PLAN, learning(), lambda _fraction, _text: True)
    assert store.held == [5]


def test_a_disk_that_fails_is_told_and_the_trunk_that_did_not_come_is_not_claimed() -> None:
    home, _ = open_house(broken=True)
    home.settle(PLAN, learning(), lambda _fraction, _text: True)
    assert home.fault == "weights cannot be read from their home: input/output error"
    assert home.uses()[0].trunk_bytes == 0
    small, _ = open_house(budget_bytes=20)
    small.settle(PLAN, learning(), lambda _fraction, _text: True)
    assert small.fault.startswith("the trunk does not fit")


def test_loading_can_be_given_up() -> None:
    with pytest.raises(GivenUpError):
        open_house()[0].settle(PLAN, learning(), lambda _fraction, _text: False)


def test_moves_by_hand_are_the_store_s() -> None:
    home, store = open_house()
    warmth = np.zeros(EXPERTS)

    def do(verb: str, expert: int) -> str:
        order = home.order(Move("m", verb, 0, expert), warmth)
        home.obey(order, lambda: False)
        return order.text

    assert do("pin", 2) == "promoting and pinning 1 expert, 100 B"
    assert store.pinned == {2}
    do("promote", 3)
    do("unpin", 2)
    assert (store.held, store.pinned) == ([2, 3], set())
    assert do("demote", 3) == "demoting 1 expert, 100 B; they come back when the router chooses them"
    assert store.held == [2]


def test_what_memory_forces_is_said() -> None:
    home, store = open_house()
    store.memory_says = "9 GB of resident weights would leave too little memory; 7 GB are kept"
    home.exchange(learning(), 0.0, lambda: False)
    assert home.fault == store.memory_says
