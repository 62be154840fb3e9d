"""The policy `heat` promotes the trunk, then the experts that were chosen most often and most recently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from optaned.api import Env, ExpertStats, PlacementPolicy, PlanRequest, TierInfo, TierKind
from optaned.testing.policy_contract import PolicyContract, example_index
from optaned_heat import HeatOptions, HeatPolicy, optaned_placement_policies

PMEM = TierInfo("pmem0", "fsdax", TierKind.BYTE, 9000, 900, mount=Path("/pmem"))


def policy(**options: Any) -> HeatPolicy:
    (driver,) = optaned_placement_policies()
    made = driver.open("heat", HeatOptions(**options), Env())
    assert isinstance(made, HeatPolicy)
    return made


def stats(frequency: list[float], idle: list[float]) -> ExpertStats:
    return ExpertStats(np.array(frequency), np.array(idle), np.zeros(len(idle), dtype=bool), 100)


class TestContract(PolicyContract):
    def policy(self) -> PlacementPolicy:
        return policy()


def request(room: int, heat: ExpertStats | None) -> PlanRequest:
    return PlanRequest(
        example_index(), (TierInfo("dram0", "memory", TierKind.BYTE, 9000, room), PMEM), ("dram0",), 0, heat
    )


def test_saved_heat_says_which_experts_to_begin_with() -> None:
    frequency = np.zeros(24)
    frequency[[20, 3, 9]] = [0.9, 0.5, 0.7]
    plan = policy().plan(request(203 + 36, stats(frequency.tolist(), [np.inf] * 24)))
    assert [part.experts for part in plan.promotions] == [(), (20, 9)]
    roomy = policy().plan(request(10_000, stats(frequency.tolist(), [np.inf] * 24)))
    assert roomy.promotions[1].experts == (20, 9, 3)
    assert roomy.notes == ()


def test_without_saved_heat_experts_stay_at_home_and_that_is_said() -> None:
    plan = policy().plan(request(10_000, None))
    assert [part.experts for part in plan.promotions] == [()]
    assert plan.notes == ("no heat is saved yet: experts move in as they are used",)


def test_a_recent_use_counts_for_a_while() -> None:
    fresh, stale = policy().score(stats([0.1, 0.1], [0, 1000]))
    assert fresh == pytest.approx(0.4)
    assert stale == pytest.approx(0.1, abs=1e-4)
    halved = policy(recency_tokens=8).score(stats([0.0], [8]))
    assert halved[0] == pytest.approx(0.15)


def test_without_recency_frequency_alone_counts() -> None:
    np.testing.assert_array_equal(policy(recency_weight=0).score(stats([0.2, 0.1], [np.inf, 0])), [0.2, 0.1])


def test_options_that_make_no_sense_are_refused() -> None:
    for bad in ({"recency_tokens": 0}, {"recency_weight": -1}, {"recency": 1}):
        with pytest.raises(ValidationError):
            HeatOptions.model_validate(bad)
