"""No policy can overfill a tier, lose a byte, or put the cache where it cannot be addressed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.model import ByteRange, Group, ModelIndex, Shard, Tensor
from optaned.domain.tiers import Allotment, PlacementPlan, TierInfo, TierKind
from optaned.placement.check import faults_of

DRAM = TierInfo("dram0", "memory", TierKind.BYTE, 1000, 100)
NVME = TierInfo("nvme0", "file", TierKind.BLOCK, 9000, 4000, mount=Path("/nvme"))
INDEX = ModelIndex(
    "llama",
    "m",
    (Shard(Path("/nvme/m.gguf"), 100, 10),),
    (
        Tensor("a", (1,), "F32", ByteRange(0, 10, 30), 0, Group.TRUNK),
        Tensor("b", (5, 5), "F32", ByteRange(0, 40, 50), 0, Group.EXPERT),
    ),
    "digest",
    1,
    expert_count=5,
    expert_used_count=2,
)
TIERS = (DRAM, NVME)
PROMOTED = PlacementPlan(
    (Allotment("dram0", Group.TRUNK, 30, home=False, tensors=(0,)), Allotment("nvme0", Group.EXPERT, 50, home=True)),
    "dram0",
    20,
)


def faults(plan: PlacementPlan, tiers: tuple[TierInfo, ...] = TIERS) -> list[str]:
    return faults_of(plan, INDEX, tiers, 20)


def changed(*allotments: Allotment) -> PlacementPlan:
    return replace(PROMOTED, allotments=allotments)


def test_a_sound_plan_has_no_fault() -> None:
    assert faults(PROMOTED) == []


def test_lost_and_doubled_bytes_are_counted() -> None:
    lost = changed(Allotment("nvme0", Group.TRUNK, 29, home=True), Allotment("nvme0", Group.EXPERT, 50, home=True))
    assert faults(lost) == ["it places 29 B of trunk, the model has 30 B: each byte lies on exactly one tier"]
    doubled = changed(*PROMOTED.allotments, Allotment("nvme0", Group.TRUNK, 30, home=True))
    assert "it places 60 B of trunk" in faults(doubled)[0]


def test_a_tier_is_never_overfull_the_cache_counted_in() -> None:
    assert faults(PROMOTED, (replace(DRAM, free_bytes=49), NVME)) == ["it puts 50 B on dram0, which has 49 B free"]


def test_what_is_called_home_must_lie_there() -> None:
    wrong = changed(Allotment("dram0", Group.TRUNK, 30, home=True), Allotment("nvme0", Group.EXPERT, 50, home=True))
    assert faults(wrong) == ["it leaves 30 B of trunk at home on dram0, where 0 B lie"]


def test_the_cache_is_whole_and_byte_addressable() -> None:
    assert faults(replace(PROMOTED, kv_tier="nvme0")) == [
        "it puts the KV cache on nvme0, which is not byte-addressable"
    ]
    assert faults(replace(PROMOTED, kv_bytes=1)) == ["it plans 1 B for the KV cache, which needs 20 B"]


def test_tiers_that_do_not_exist_are_named() -> None:
    assert faults(replace(PROMOTED, kv_tier="")) == ["it names the tier '', which does not exist"]


def experts(*numbers: int, size_bytes: int) -> PlacementPlan:
    moved = Allotment("dram0", Group.EXPERT, size_bytes, home=False, experts=numbers)
    return changed(
        Allotment("nvme0", Group.TRUNK, 30, home=True),
        moved,
        Allotment("nvme0", Group.EXPERT, 50 - size_bytes, home=True),
    )


def test_what_moves_is_named_once_and_has_the_size_that_is_said() -> None:
    assert faults(experts(0, 4, size_bytes=20)) == []
    assert faults(experts(0, 4, size_bytes=19)) == ["it moves 19 B of expert to dram0, but what it names has 20 B"]
    assert faults(experts(size_bytes=10)) == ["it moves 10 B of expert to dram0, but what it names has 0 B"]
    assert faults(experts(3, 3, size_bytes=20)) == ["it moves expert 3 twice"]
    assert faults(experts(5, size_bytes=10)) == ["it moves expert to dram0: there is no expert 5"]


def test_trunk_is_named_by_tensors_and_experts_by_their_numbers() -> None:
    whole = Allotment("nvme0", Group.EXPERT, 50, home=True)
    assert faults(changed(Allotment("dram0", Group.TRUNK, 30, home=False, tensors=(1,)), whole)) == [
        "it moves trunk to dram0: there is no tensor 1 in it"
    ]
    assert faults(changed(Allotment("dram0", Group.TRUNK, 30, home=False, experts=(1,)), whole)) == [
        "it moves trunk to dram0: experts are named, tensors are meant"
    ]
    assert faults(changed(Allotment("nvme0", Group.TRUNK, 30, home=True, tensors=(0,)), whole)) == [
        "it names what stays at home on nvme0; name only what moves"
    ]


PARTS = st.builds(
    Allotment,
    st.sampled_from(["dram0", "nvme0", "gpu9"]),
    st.sampled_from(Group),
    st.integers(-5, 60),
    st.booleans(),
    st.lists(st.integers(-1, 2), max_size=2).map(tuple),
    st.lists(st.integers(-1, 6), max_size=5).map(tuple),
)


@given(parts=st.lists(PARTS, max_size=4), kv_tier=st.sampled_from(["dram0", "nvme0", ""]))
def test_whatever_passes_keeps_to_the_rules(parts: list[Allotment], kv_tier: str) -> None:
    plan = PlacementPlan(tuple(parts), kv_tier, 20)
    if faults(plan):
        return
    assert plan.size_bytes == INDEX.size_bytes
    assert plan.claimed_bytes("dram0") <= DRAM.free_bytes
    assert plan.kv_tier == "dram0"
    assert all(a.size_bytes >= 0 and a.tier != "gpu9" for a in plan.allotments)
    named = [number for a in plan.promotions for number in a.experts]
    assert len(named) == len(set(named))
    assert 10 * len(named) + 30 * sum(len(a.tensors) for a in plan.promotions) == sum(
        a.size_bytes for a in plan.promotions
    )
