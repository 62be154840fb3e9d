"""The policy `home` leaves weights where they lie and finds DRAM for the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from optaned.api import (
    ByteRange,
    ConfigError,
    Env,
    Group,
    ModelIndex,
    PlacementPlan,
    PlanRequest,
    Shard,
    Tensor,
    TierInfo,
    TierKind,
)
from optaned_home import HomeOptions, optaned_placement_policies

DRAM = TierInfo("dram0", "memory", TierKind.BYTE, 1000, 500)
DRAM1 = TierInfo("dram1", "memory", TierKind.BYTE, 1000, 600)
PMEM = TierInfo("pmem0", "fsdax", TierKind.BYTE, 9000, 4000, mount=Path("/pmem"))
NVME = TierInfo("nvme0", "file", TierKind.BLOCK, 9000, 4000, mount=Path("/nvme"))
INDEX = ModelIndex(
    "llama",
    "m",
    (Shard(Path("/links/1.gguf"), 100, 10, Path("/pmem/1.gguf")), Shard(Path("/nvme/2.gguf"), 100, 10)),
    (
        Tensor("a", (1,), "F32", ByteRange(0, 10, 30), 0, Group.TRUNK),
        Tensor("b", (1,), "F32", ByteRange(0, 40, 50), 0, Group.EXPERT),
        Tensor("c", (1,), "F32", ByteRange(1, 10, 70), 1, Group.EXPERT),
    ),
    "digest",
    2,
)


def plan(*tiers: TierInfo, promote_to: tuple[str, ...] = (), kv_bytes: int = 100) -> PlacementPlan:
    (driver,) = optaned_placement_policies()
    return driver.open("home", HomeOptions(), Env()).plan(PlanRequest(INDEX, tiers, promote_to, kv_bytes))


def test_each_byte_stays_on_the_tier_of_its_shard() -> None:
    made = plan(DRAM, PMEM, NVME)
    assert {(a.tier, a.group, a.size_bytes) for a in made.allotments} == {
        ("pmem0", Group.TRUNK, 30),
        ("pmem0", Group.EXPERT, 50),
        ("nvme0", Group.EXPERT, 70),
    }
    assert all(a.home for a in made.allotments)


def test_a_block_tier_is_said_to_take_the_page_cache() -> None:
    assert plan(DRAM, PMEM, NVME).notes == (
        "weights on nvme0 are read through the page cache, which takes what DRAM is left",
    )


def test_the_cache_goes_to_dram_before_pmem_and_where_it_was_asked_to() -> None:
    assert plan(PMEM, DRAM, DRAM1, NVME).kv_tier == "dram0"
    assert plan(PMEM, DRAM, DRAM1, NVME, promote_to=("dram1", "dram0")).kv_tier == "dram1"
    assert plan(PMEM, DRAM, DRAM1, NVME, kv_bytes=550).kv_tier == "dram1"
    assert plan(PMEM, DRAM, DRAM1, NVME, kv_bytes=3000).kv_tier == "pmem0"


def test_a_cache_that_fits_nowhere_is_said_with_both_sizes() -> None:
    with pytest.raises(ConfigError, match=r"needs 1\.953 KiB, but dram0 has 500 B free; lower context"):
        plan(DRAM, TierInfo("pmem0", "fsdax", TierKind.BYTE, 9, 9, mount=Path("/pmem")), NVME, kv_bytes=2000)


def test_a_shard_on_no_tier_and_a_machine_without_memory_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^/nvme/2\.gguf: lies on no tier"):
        plan(DRAM, PMEM)
    with pytest.raises(ConfigError, match="no byte-addressable tier for the KV cache"):
        plan(NVME, TierInfo("d", "file", TierKind.BLOCK, 9, 9, mount=Path("/pmem")))
