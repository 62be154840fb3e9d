"""Tiers are filled with the cache, the trunk in layer order, then experts in a policy's order, and never too full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.model import Group, ModelIndex
from optaned.domain.tiers import Allotment, PlacementPlan, TierInfo, TierKind
from optaned.errors import ConfigError
from optaned.placement.check import faults_of
from optaned.placement.fill import fill_tiers
from optaned.placement.reads import read_bytes, read_order
from optaned.testing.policy_contract import example_index

PMEM = TierInfo("pmem0", "fsdax", TierKind.BYTE, 9000, 900, mount=Path("/pmem"))
NVME = TierInfo("nvme0", "file", TierKind.BLOCK, 9000, 900, mount=Path("/nvme"))
INDEX = example_index(("/pmem",))
SPREAD = example_index(("/pmem", "/nvme"))
# Trunk of the example: embeddings 100 B, output 40 B, attention 20, 21 and 22 B; an expert 12, 15 or 18 B.
OUTPUT, EMBEDDINGS = 1, 0


def dram(free_bytes: int, name: str = "dram0") -> TierInfo:
    return TierInfo(name, "memory", TierKind.BYTE, 10_000, free_bytes)


def filled(
    *fast: TierInfo, experts: tuple[int, ...] = (), kv_bytes: int = 0, index: ModelIndex = INDEX
) -> PlacementPlan:
    tiers = (*fast, PMEM, NVME)
    plan = fill_tiers(
        index, tiers, promote_to=[tier.name for tier in fast], kv_bytes=kv_bytes, experts=np.array(experts, dtype=int)
    )
    assert faults_of(plan, index, tiers, kv_bytes) == []
    return plan


def moved(plan: PlacementPlan, group: Group) -> dict[str, tuple[int, ...]]:
    return {a.tier: a.tensors + a.experts for a in plan.promotions if a.group is group}


def test_a_token_looks_up_one_row_of_the_embeddings_and_reads_all_else() -> None:
    assert read_bytes(INDEX)[:3] == (4, 40, 20)
    assert read_order(INDEX) == (OUTPUT, 2, 6, 10, EMBEDDINGS)
    tied = replace(INDEX, tensors=tuple(t for t in INDEX.tensors if t.name != "output.weight"))
    assert read_bytes(tied)[EMBEDDINGS] == 100
    assert read_order(tied)[0] == EMBEDDINGS


def test_a_trunk_that_does_not_fit_is_taken_by_whole_tensors_in_order_and_said() -> None:
    plan = filled(dram(85))
    assert moved(plan, Group.TRUNK) == {"dram0": (OUTPUT, 2, 6)}
    assert plan.notes == ("122 B of the trunk (203 B) stay at home and are read there for every token",)
    assert filled(dram(203)).notes == ()


def test_the_cache_is_reserved_before_the_trunk() -> None:
    plan = filled(dram(85), kv_bytes=45)
    assert plan.kv_tier == "dram0"
    assert moved(plan, Group.TRUNK) == {"dram0": (OUTPUT,)}


def test_experts_follow_the_trunk_in_the_given_order_over_all_tiers() -> None:
    plan = filled(dram(203 + 30), dram(40, "dram1"), experts=(17, 0, 9, 8, 1, 16))
    assert moved(plan, Group.EXPERT) == {"dram0": (17, 0), "dram1": (9, 8)}
    assert plan.group_bytes(Group.EXPERT) == INDEX.expert_bytes


def test_what_lies_on_two_homes_leaves_each_by_what_it_gives() -> None:
    plan = filled(dram(1000), experts=(0, 8, 16), index=SPREAD)
    left = {(a.tier, a.group): a.size_bytes for a in plan.allotments if a.home}
    assert left == {("pmem0", Group.EXPERT): 7 * 12 + 7 * 18, ("nvme0", Group.EXPERT): 7 * 15}


def test_what_lies_on_a_target_already_stays_there() -> None:
    tiers = (replace(PMEM, free_bytes=5000), NVME)
    plan = fill_tiers(SPREAD, tiers, promote_to=("pmem0",), kv_bytes=0, experts=range(24))
    assert faults_of(plan, SPREAD, tiers, 0) == []
    assert moved(plan, Group.EXPERT) == {"pmem0": tuple(range(8, 16))}
    assert Allotment("pmem0", Group.TRUNK, 182, home=True) in plan.allotments


def test_a_dense_model_has_a_trunk_alone() -> None:
    dense = replace(INDEX, tensors=INDEX.tensors[:3], expert_count=0)
    assert filled(dram(1000), index=dense).promotions == (
        Allotment("dram0", Group.TRUNK, 160, home=False, tensors=(OUTPUT, 2, EMBEDDINGS)),
    )


def test_targets_that_cannot_be_are_named() -> None:
    with pytest.raises(ConfigError, match=r"placement\.promote_to: nvme0 is a disk; name tiers of memory only"):
        fill_tiers(INDEX, (dram(10), PMEM, NVME), promote_to=("nvme0",), kv_bytes=0)
    with pytest.raises(ConfigError, match=r"there is no tier 'dram9'; tiers: dram0, pmem0"):
        fill_tiers(INDEX, (dram(10), PMEM), promote_to=("dram9",), kv_bytes=0)
    with pytest.raises(ConfigError, match=r"^/pmem/0\.gguf: lies on no tier"):
        fill_tiers(INDEX, (dram(10),), promote_to=(), kv_bytes=0)
    with pytest.raises(ConfigError, match=r"needs 2 KiB, but pmem0 has 900 B free; lower context"):
        fill_tiers(INDEX, (dram(10), PMEM), promote_to=(), kv_bytes=2048)


@given(
    rooms=st.lists(st.integers(0, 700), min_size=1, max_size=3),
    kv_bytes=st.integers(0, 300),
    experts=st.permutations(range(24)),
    kept=st.integers(0, 24),
    index=st.sampled_from([INDEX, SPREAD]),
)
def test_every_filling_passes_the_cores_own_check(
    rooms: list[int], kv_bytes: int, experts: list[int], kept: int, index: ModelIndex
) -> None:
    fast = [dram(room, f"dram{number}") for number, room in enumerate(rooms)]
    plan = filled(*fast, experts=tuple(experts[:kept]), kv_bytes=kv_bytes, index=index)
    order = [number for part in plan.promotions for number in part.experts]
    assert order == experts[: len(order)]
