"""Skew is told from chance: a uniform router is near the null however few tokens there were, a real one is not."""

from __future__ import annotations

import numpy as np
import pytest

from optaned.placement.heat import Heat
from optaned.placement.skew import LEAST_TOKENS, believable_frequency, measure_skew
from optaned.testing.traces import Trace, k3_trace, make_trace, skewed_trace, uniform_trace


def learned(trace: Trace, half_life: float = 256.0) -> Heat:
    heat = Heat.cold(trace.layers * trace.experts, half_life_tokens=half_life)
    for used in trace.flat:
        heat = heat.observe(np.bincount(used, minlength=heat.weight.size), 1)
    return heat


@pytest.mark.parametrize("tokens", [40, 400])
@pytest.mark.parametrize("seed", range(5))
def test_a_uniform_router_is_near_the_null(tokens: int, seed: int) -> None:
    skew = measure_skew(learned(uniform_trace(tokens=tokens, seed=seed)), layers=4, used=8)
    assert skew.near_uniform
    assert not skew.exchanges_pay
    assert skew.sigmas < 4
    assert "expert moves are off: the router chooses all experts almost alike" in skew.sentence


@pytest.mark.parametrize(("trace", "used"), [(k3_trace(tokens=64), 16), (skewed_trace(tokens=64), 8)])
def test_real_routers_are_far_from_it(trace: Trace, used: int) -> None:
    skew = measure_skew(learned(trace), layers=4, used=used)
    assert skew.exchanges_pay
    assert skew.sigmas > 50
    assert skew.sentence.startswith("experts move by heat (skew 0.")


def test_nothing_is_claimed_from_a_few_tokens() -> None:
    skew = measure_skew(learned(skewed_trace(tokens=LEAST_TOKENS - 1)), layers=4, used=8)
    assert not skew.near_uniform
    assert not skew.exchanges_pay
    assert "too little is known to exchange them (31 of 32 tokens)" in skew.sentence
    assert not measure_skew(Heat.cold(512), layers=4, used=8).known


def test_skew_is_0_at_the_null_and_1_where_the_choice_is_always_the_same() -> None:
    always = Trace(np.tile(np.arange(8), (200, 4, 1)), experts=128)
    assert measure_skew(learned(always), layers=4, used=8).value == pytest.approx(1, abs=0.01)
    assert measure_skew(learned(uniform_trace(tokens=400)), layers=4, used=8).value < 0.03


def test_skew_does_not_depend_on_how_long_was_looked() -> None:
    lasting = [
        measure_skew(
            learned(make_trace(tokens=n, layers=4, experts=128, used=8, lasting=0.3, drift_tokens=1e9)),
            layers=4,
            used=8,
        )
        for n in (100, 1000)
    ]
    assert lasting[0].spread == pytest.approx(lasting[1].spread, rel=0.1)


def test_a_model_that_uses_all_experts_or_none_has_no_skew() -> None:
    heat = Heat.cold(16).observe(np.full(16, 50), 50)
    assert measure_skew(heat, layers=2, used=8).value == 0
    assert measure_skew(Heat.cold(0), layers=0, used=0).value == 0


def test_luck_is_taken_out_of_frequencies() -> None:
    trace = uniform_trace(tokens=50)
    heat = learned(trace)
    believed = believable_frequency(heat, measure_skew(heat, layers=4, used=8), layers=4)
    assert believed.sum() == pytest.approx(4 * 8)
    assert believed.std() < 0.3 * heat.frequency.std()
