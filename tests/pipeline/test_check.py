"""No policy can overfill a tier, lose a byte, or put the cache where it cannot be addressed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.model import ByteRange, Group, ModelIndex, Shard, Tensor
from optaned.domain.tiers import Allotment, PlacementPlan, TierInfo, TierKind
from optaned.hooks.drivers import PlanRequest
from optaned.pipeline.check import faults_of

DRAM = TierInfo("dram0", "memory", TierKind.BYTE, 1000, 100)
NVME = TierInfo("nvme0", "file", TierKind.BLOCK, 9000, 4000, mount=Path("/nvme"))
INDEX = ModelIndex(
    "llama",
    "m",
    (Shard(Path("/nvme/m.gguf"), 100, 10),),
    (
        Tensor("a", (1,), "F32", ByteRange(0, 10, 30), 0, Group.TRUNK),
        Tensor("b", (1,), "F32", ByteRange(0, 40, 50), 0, Group.EXPERT),
    ),
    "digest",
    1,
)
REQUEST = PlanRequest(INDEX, (DRAM, NVME), kv_bytes=20)
PROMOTED = PlacementPlan(
    (Allotment("dram0", Group.TRUNK, 30, home=False), Allotment("nvme0", Group.EXPERT, 50, home=True)), "dram0", 20
)


def changed(*allotments: Allotment) -> PlacementPlan:
    return replace(PROMOTED, allotments=allotments)


def test_a_sound_plan_has_no_fault() -> None:
    assert faults_of(PROMOTED, REQUEST) == []


def test_lost_and_doubled_bytes_are_counted() -> None:
    lost = changed(Allotment("nvme0", Group.TRUNK, 29, home=True), Allotment("nvme0", Group.EXPERT, 50, home=True))
    assert faults_of(lost, REQUEST) == [
        "it places 29 B of trunk, the model has 30 B: each byte lies on exactly one tier"
    ]
    doubled = changed(*PROMOTED.allotments, Allotment("nvme0", Group.TRUNK, 30, home=True))
    assert "it places 60 B of trunk" in faults_of(doubled, REQUEST)[0]


def test_a_tier_is_never_overfull_the_cache_counted_in() -> None:
    assert faults_of(PROMOTED, replace(REQUEST, tiers=(replace(DRAM, free_bytes=49), NVME))) == [
        "it puts 50 B on dram0, which has 49 B free"
    ]


def test_what_is_called_home_must_lie_there() -> None:
    wrong = changed(Allotment("dram0", Group.TRUNK, 30, home=True), Allotment("nvme0", Group.EXPERT, 50, home=True))
    assert faults_of(wrong, REQUEST) == ["it leaves 30 B of trunk at home on dram0, where 0 B lie"]


def test_the_cache_is_whole_and_byte_addressable() -> None:
    assert faults_of(replace(PROMOTED, kv_tier="nvme0"), REQUEST) == [
        "it puts the KV cache on nvme0, which is not byte-addressable"
    ]
    assert faults_of(replace(PROMOTED, kv_bytes=1), REQUEST) == ["it plans 1 B for the KV cache, which needs 20 B"]


def test_tiers_that_do_not_exist_are_named() -> None:
    assert faults_of(replace(PROMOTED, kv_tier=""), REQUEST) == ["it names the tier '', which does not exist"]


AMOUNTS = st.tuples(
    st.sampled_from(["dram0", "nvme0", "gpu9"]), st.sampled_from(Group), st.integers(-5, 60), st.booleans()
)


@given(parts=st.lists(AMOUNTS, max_size=5), kv_tier=st.sampled_from(["dram0", "nvme0", ""]))
def test_whatever_passes_keeps_to_the_rules(parts: list[tuple[str, Group, int, bool]], kv_tier: str) -> None:
    plan = PlacementPlan(tuple(Allotment(t, g, s, home=h) for t, g, s, h in parts), kv_tier, 20)
    if faults_of(plan, REQUEST):
        return
    assert plan.size_bytes == INDEX.size_bytes
    assert plan.claimed_bytes("dram0") <= DRAM.free_bytes
    assert plan.kv_tier == "dram0"
    assert all(a.size_bytes >= 0 and a.tier != "gpu9" for a in plan.allotments)
