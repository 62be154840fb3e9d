"""Replayed on traces like real routers', `heat` is as good as an LRU and reads far less; on a uniform one it keeps still."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from optaned.api import Env, PlacementPlan, PlacementPolicy, PlanRequest, TierInfo, TierKind
from optaned.placement.heat import Heat
from optaned.testing.baselines import belady_share, lru_share, null_share
from optaned.testing.replay import Replay, replay, rules_for
from optaned.testing.traces import Trace, k3_trace, make_trace, read_trace, skewed_trace, trace_of, uniform_trace
from optaned_heat import optaned_placement_policies as heat_policies
from optaned_static import optaned_placement_policies as static_policies

K3, SKEWED, UNIFORM = k3_trace(), skewed_trace(), uniform_trace()
# What Kimi K3 was measured with, and what a small machine holds of a skewed model.
SHARES = {"k3": (K3, 0.095), "skewed": (SKEWED, 0.125), "uniform": (UNIFORM, 0.2)}


def policy(name: str) -> PlacementPolicy:
    (driver,) = {"heat": heat_policies, "static": static_policies}[name]()
    made = driver.open(name, driver.options(), Env())
    assert isinstance(made, PlacementPolicy)
    return made


def capacity(trace: Trace, share: float) -> int:
    return int(share * trace.layers * trace.experts)


def tiers(trace: Trace, share: float) -> tuple[TierInfo, ...]:
    return (TierInfo("dram0", "memory", TierKind.BYTE, 1 << 50, capacity(trace, share) * trace.expert_bytes),)


def played(name: str, which: str, *, free: bool = False, heat: Heat | None = None) -> Replay:
    trace, share = SHARES[which]
    rules = rules_for(trace, payback_tokens=math.inf, hysteresis=0) if free else None
    return replay(policy(name), trace, tiers(trace, share), rules=rules, heat=heat, after=trace.tokens // 2)


def lru_home_bytes(which: str) -> float:
    """An LRU reads every miss twice: once to answer, once to hold it."""
    trace, share = SHARES[which]
    missed = 1 - lru_share(trace, capacity(trace, share), after=trace.tokens // 2)
    return 2 * missed * trace.layers * trace.used * trace.expert_bytes


def test_the_k3_trace_is_what_was_measured() -> None:
    assert pytest.approx(0.30, abs=0.02) == K3.reuse
    assert lru_share(K3, capacity(K3, 0.095), after=128) == pytest.approx(0.56, abs=0.02)


@pytest.mark.parametrize("which", ["k3", "skewed"])
def test_heat_hits_as_often_as_an_lru_and_reads_much_less_from_home(which: str) -> None:
    seen = played("heat", which)
    assert seen.hit_share >= seen.lru_share - 0.01
    assert seen.home_bytes < 0.6 * lru_home_bytes(which)
    assert seen.null_share < seen.hit_share < seen.belady_share


@pytest.mark.parametrize("which", ["k3", "skewed"])
def test_where_moves_are_free_heat_hits_more_often_than_an_lru(which: str) -> None:
    seen = played("heat", which, free=True)
    assert seen.lru_share + 0.01 < seen.hit_share < seen.belady_share


@pytest.mark.parametrize("which", ["k3", "skewed"])
def test_static_gets_what_chance_gives(which: str) -> None:
    seen = played("static", which)
    assert seen.hit_share == pytest.approx(seen.null_share, abs=0.03)
    assert seen.moved_bytes == 0
    assert seen.hit_share < played("heat", which).hit_share


def test_a_uniform_router_moves_no_expert_once_memory_is_full() -> None:
    seen = played("heat", "uniform")
    assert seen.skew.near_uniform
    assert seen.moved_bytes == 0
    assert seen.hit_share == pytest.approx(seen.null_share, abs=0.02)


def test_saved_heat_of_the_same_work_hits_from_the_first_token() -> None:
    long = make_trace(
        tokens=300, layers=4, experts=128, used=8, lasting=0.7, passing=0.1, passing_tokens=4, drift_tokens=1e6
    )
    before, now = Trace(long.choices[:250], 128), Trace(long.choices[250:], 128)
    heat = Heat.cold(512)
    for used in before.flat:
        heat = heat.observe(np.bincount(used, minlength=512), 1)
    warm = replay(policy("heat"), now, tiers(now, 0.125), heat=heat)
    cold = replay(policy("heat"), now, tiers(now, 0.125))
    assert warm.hit_share > 0.6
    assert warm.hit_share > cold.hit_share + 0.05


def test_saved_heat_of_other_work_is_outgrown() -> None:
    heat = Heat.cold(K3.layers * K3.experts)
    for used in k3_trace(tokens=600, seed=7).flat:
        heat = heat.observe(np.bincount(used, minlength=heat.weight.size), 1)
    seen = played("heat", "k3", heat=heat)
    assert seen.hit_share > seen.lru_share - 0.1


def test_two_tiers_hold_as_much_as_one_of_their_size() -> None:
    one = tiers(SKEWED, 0.125)[0].free_bytes
    both = tuple(TierInfo(f"dram{n}", "memory", TierKind.BYTE, 1 << 50, one // 2) for n in (0, 1))
    assert replay(policy("heat"), SKEWED, both, after=128).hit_share == pytest.approx(
        played("heat", "skewed").hit_share, abs=0.01
    )


def test_a_plan_that_breaks_a_rule_is_not_replayed() -> None:
    class Liar:
        def plan(self, request: PlanRequest) -> PlacementPlan:
            return PlacementPlan((), "dram0")

    with pytest.raises(ValueError, match="it places 0 B of expert"):
        replay(Liar(), SKEWED, tiers(SKEWED, 0.1))


SMALL = Trace(np.array([[[0, 1]], [[0, 2]], [[0, 1]], [[0, 3]], [[0, 1]]]), experts=4)


def test_baselines_are_right_where_one_can_count() -> None:
    # Of 10 uses an LRU of two finds expert 0 again four times; a clairvoyant keeps 1 as well and finds it twice.
    assert lru_share(SMALL, 2) == pytest.approx(0.4)
    assert belady_share(SMALL, 2) == pytest.approx(0.6)
    assert null_share(SMALL, 2) == 0.5
    assert null_share(SMALL, 9) == 1.0
    assert lru_share(SMALL, 4) == belady_share(SMALL, 4) == pytest.approx(0.6)
    assert lru_share(SMALL, 0) == belady_share(SMALL, 0) == 0.0


def test_recorded_choices_become_a_trace() -> None:
    recorded = [(3, (1, 2)), (5, (0, 1)), (3, (2, 0)), (5, (1, 2)), (3, (0, 1))]
    trace = trace_of(recorded, experts=4)
    assert (trace.tokens, trace.layers, trace.used) == (2, 2, 2)
    assert trace.flat.tolist() == [[1, 2, 4, 5], [2, 0, 5, 6]]
    assert trace.reuse == pytest.approx(0.5)
    with pytest.raises(ValueError, match="do not repeat the same layers token by token"):
        trace_of([(3, (1,)), (5, (0,)), (3, (1,)), (4, (0,))], experts=4)


def test_a_recording_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "night.ndjson"
    file.write_text(
        '{"model": "m", "digest": "d", "layers": [3, 5], "experts": 4, "experts_used": 2}\n'
        '{"choices": [[3, [1, 2]], [5, [0, 1]]]}\n{"lost": 3}\n{"choices": [[3, [2, 0]], [5, [1, 2]]]}\n'
    )
    trace = read_trace(file)
    assert trace.experts == 4
    assert trace.choices.tolist() == [[[1, 2], [0, 1]], [[2, 0], [1, 2]]]
    file.write_text("")
    with pytest.raises(ValueError, match="the first line does not say how many experts there are"):
        read_trace(file)


def test_shares_of_variance_are_checked() -> None:
    with pytest.raises(ValueError, match="more than 1"):
        make_trace(tokens=1, layers=1, experts=4, used=1, lasting=0.7, passing=0.4)
