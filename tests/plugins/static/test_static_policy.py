"""The policy `static` fills fast tiers with the trunk and then one layer's experts after another."""

from __future__ import annotations

from pathlib import Path

from optaned.api import Env, Group, PlacementPolicy, PlanRequest, Scores, TierInfo, TierKind
from optaned.testing.policy_contract import PolicyContract, example_index
from optaned_static import StaticOptions, optaned_placement_policies

DRAM = TierInfo("dram0", "memory", TierKind.BYTE, 9000, 203 + 8 * 12 + 2 * 15 + 1)
PMEM = TierInfo("pmem0", "fsdax", TierKind.BYTE, 9000, 900, mount=Path("/pmem"))


def policy() -> PlacementPolicy:
    (driver,) = optaned_placement_policies()
    made = driver.open("static", StaticOptions(), Env())
    assert isinstance(made, PlacementPolicy)
    return made


class TestContract(PolicyContract):
    def policy(self) -> PlacementPolicy:
        return policy()


def test_layers_come_in_order_after_the_trunk() -> None:
    plan = policy().plan(PlanRequest(example_index(), (DRAM, PMEM), ("dram0",)))
    trunk, experts = plan.promotions
    assert (trunk.group, trunk.size_bytes) == (Group.TRUNK, 203)
    assert experts.experts == tuple(range(10))


def test_it_never_moves_anything_later() -> None:
    assert not isinstance(policy(), Scores)
