"""Where a file lies, and what a plan takes of a tier."""

from __future__ import annotations

from pathlib import Path

from optaned.domain.model import Group
from optaned.domain.tiers import Allotment, PlacementPlan, TierInfo, TierKind, home_of


def tier(name: str, mount: str | None) -> TierInfo:
    return TierInfo(name, "file", TierKind.BLOCK, 100, 50, mount=Path(mount) if mount else None)


def test_the_innermost_mount_is_a_files_home() -> None:
    tiers = (tier("root", "/"), tier("dram", None), tier("pmem", "/mnt/pmem0"), tier("other", "/mnt/pmem"))
    found = home_of(Path("/mnt/pmem0/m.gguf"), tiers)
    assert found is not None
    assert found.name == "pmem"
    assert home_of(Path("/srv/m.gguf"), tiers[1:]) is None


def test_what_lies_at_home_takes_no_free_bytes() -> None:
    plan = PlacementPlan(
        (Allotment("a", Group.TRUNK, 10, home=True), Allotment("a", Group.EXPERT, 3, home=False)),
        kv_tier="a",
        kv_bytes=5,
    )
    assert plan.claimed_bytes("a") == 8
    assert plan.used_bytes("a") == 18
    assert plan.group_bytes(Group.TRUNK) == 10
    assert plan.size_bytes == 13
