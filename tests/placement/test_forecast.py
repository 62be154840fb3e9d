"""A forecast says what a token reads from each tier, and how fast that can be where memory binds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optaned.domain.tiers import TierInfo, TierKind
from optaned.placement.fill import fill_tiers
from optaned.placement.forecast import Forecast, forecast
from optaned.testing.policy_contract import example_index

INDEX = example_index(("/pmem",))
DRAM = TierInfo("dram0", "memory", TierKind.BYTE, 10_000, 10_000, read_gbps=100.0)
PMEM = TierInfo("pmem0", "fsdax", TierKind.BYTE, 9000, 900, read_gbps=25.0, mount=Path("/pmem"))
# A token reads 4 B of embeddings, 40 of output and 63 of attention, and 2 of 8 experts a layer: 24 + 30 + 36 B.
TRUNK, ROUTED = 107, 90


def made(experts: tuple[int, ...] = (), frequency: object = None, room: int = 10_000) -> Forecast:
    tiers = (replace(DRAM, free_bytes=room), PMEM)
    plan = fill_tiers(INDEX, tiers, promote_to=("dram0",), kv_bytes=0, experts=experts)
    return forecast(INDEX, plan, tiers, np.asarray(frequency) if frequency is not None else None)


def test_at_home_everything_is_read_there() -> None:
    dram, pmem = made(room=0).reads
    assert dram.size_bytes == 0
    assert [pmem.trunk_bytes, pmem.expert_bytes] == pytest.approx([TRUNK, ROUTED])


def test_without_heat_all_experts_are_alike() -> None:
    dram, pmem = made(experts=tuple(range(12))).reads
    assert [dram.trunk_bytes, dram.expert_bytes] == pytest.approx([TRUNK, 24 + 15])
    assert pmem.expert_bytes == pytest.approx(15 + 36)


def test_with_heat_hot_experts_answer_for_more() -> None:
    frequency = np.full((3, 8), 0.1)
    frequency[0, :2] = 0.7
    seen = made(experts=(0, 1), frequency=frequency.ravel())
    assert seen.reads[0].expert_bytes == pytest.approx(1.4 * 12)
    assert seen.hit_share == pytest.approx(1.4 * 12 / ROUTED)
    assert seen.size_bytes == pytest.approx(TRUNK + ROUTED)


def test_the_speed_is_what_all_tiers_need_one_after_another() -> None:
    seen = made(experts=tuple(range(24)))
    assert seen.tokens_per_second((DRAM, PMEM)) == pytest.approx(100e9 / (TRUNK + ROUTED))
    assert made(room=0).tokens_per_second((DRAM, PMEM)) == pytest.approx(25e9 / (TRUNK + ROUTED))


def test_an_unknown_bandwidth_that_matters_makes_the_speed_unknown() -> None:
    unknown = replace(PMEM, read_gbps=None)
    assert made(room=0).tokens_per_second((DRAM, unknown)) is None
    assert made(experts=tuple(range(24))).tokens_per_second((DRAM, unknown)) is not None
