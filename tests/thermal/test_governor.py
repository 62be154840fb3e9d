"""The governor on single scenes: each is a rule of the design in numbers, for a limit of 85 °C."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from optaned.domain.thermal import Level, Reading, ReadingState, Snapshot
from optaned.thermal.governor import Decision, GovernorState, step
from optaned.thermal.policy import SensorPolicy, ThermalPolicy

POLICY = ThermalPolicy(sensors={"dimms": SensorPolicy()})
OPTIONAL = ThermalPolicy(sensors={"dimms": SensorPolicy(required=False)})


def at(celsius: float | None, now_s: float, point: str = "dimm0", **more: object) -> Snapshot:
    return Snapshot(now_s, {"dimms": (Reading(point, celsius, now_s, **more),)})  # type: ignore[arg-type]


def play(course: Iterable[float | None], policy: ThermalPolicy = POLICY, every_s: float = 1.0) -> list[Decision]:
    """Return the decisions on one point's temperatures, one a second; None is a second without a reading."""
    state, decisions = GovernorState(), []
    for second, celsius in enumerate(course):
        now_s = 100.0 + second * every_s
        snapshot = Snapshot(now_s) if celsius is None else at(celsius, now_s)
        state, decision = step(state, snapshot, policy)
        decisions.append(decision)
    return decisions


def levels(course: Iterable[float | None], policy: ThermalPolicy = POLICY) -> list[Level]:
    return [decision.proposal.level for decision in play(course, policy)]


@pytest.mark.parametrize(
    ("celsius", "level"),
    [(45, Level.COOL), (59, Level.COOL), (60, Level.WARM), (71, Level.WARM), (72, Level.HOT), (76, Level.CRITICAL)],
)
def test_levels_begin_at_the_headrooms_of_the_policy(celsius: float, level: Level) -> None:
    assert levels([celsius]) == [level]


def test_a_trip_takes_three_hot_readings_of_one_point() -> None:
    assert levels([81, 81, 81]) == [Level.CRITICAL, Level.CRITICAL, Level.TRIP]


def test_the_same_reading_seen_three_times_is_no_confirmation() -> None:
    state = GovernorState()
    for now_s in (100.0, 100.3, 100.6, 100.9):
        state, decision = step(state, Snapshot(now_s, {"dimms": (Reading("dimm0", 84.0, 100.0),)}), POLICY)
        assert decision.proposal.level is Level.CRITICAL


def test_a_single_spike_is_critical_for_a_moment_and_never_a_trip() -> None:
    assert levels([50, 50, 84, 50, 50]) == [Level.COOL, Level.COOL, Level.CRITICAL, Level.COOL, Level.COOL]


def test_a_sensor_that_says_nothing_is_hot_at_once_and_critical_after_thirty_seconds_but_never_a_trip() -> None:
    course = levels([45, *[None] * 400])
    assert course[1] is Level.HOT
    assert course[30] is Level.HOT
    assert course[31] is Level.CRITICAL
    assert course[-1] is Level.CRITICAL


def test_an_optional_sensor_that_says_nothing_stays_hot() -> None:
    assert set(levels([None] * 100, OPTIONAL)) == {Level.HOT}


def test_a_lost_sensor_means_full_fans_and_half_the_duty() -> None:
    proposal = play([None])[0].proposal
    assert (proposal.cooling, proposal.duty) == (1.0, 0.5)


def test_a_sensor_that_comes_back_cool_is_cool_at_once() -> None:
    assert levels([*[None] * 40, 45])[-1] is Level.COOL


def test_a_lost_sensor_keeps_the_level_it_had_when_that_was_worse() -> None:
    assert levels([77, None]) == [Level.CRITICAL, Level.CRITICAL]
    assert levels([82, 82, 82, None])[-1] is Level.TRIP


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (Reading("dimm0", 0.0, 100.0), "says 0 °C"),
        (Reading("dimm0", 255.0, 100.0), "says 255 °C"),
        (Reading("dimm0", math.nan, 100.0), "says nan °C"),
        (Reading("dimm0", 45.0, 97.0), "is 3.0 s old"),
        (Reading("dimm0", 45.0, 200.0), "is stamped in the future"),
        (Reading("dimm0", None, 100.0), "missing"),
        (Reading("dimm0", 45.0, 100.0, ReadingState.SUSPECT, reason="frozen"), "suspect: frozen"),
    ],
)
def test_a_reading_that_cannot_be_believed_is_hot_and_says_why(reading: Reading, reason: str) -> None:
    _, decision = step(GovernorState(), Snapshot(100.0, {"dimms": (reading,)}), POLICY)
    assert decision.proposal.level is Level.HOT
    assert reason in decision.proposal.reasons[0]


def test_one_point_that_vanishes_is_hot_although_the_others_speak() -> None:
    both = (Reading("dimm0", 45.0, 100.0), Reading("dimm1", 45.0, 100.0))
    state, _ = step(GovernorState(), Snapshot(100.0, {"dimms": both}), POLICY)
    _, decision = step(state, at(45.0, 101.0), POLICY)
    assert decision.proposal.level is Level.HOT
    assert decision.proposal.reasons == ("dimms dimm1 gives no reading",)


def test_of_two_readings_of_one_point_the_worse_counts() -> None:
    twice = (Reading("dimm0", 45.0, 100.0), Reading("dimm0", 77.0, 100.0), Reading("dimm0", 50.0, 100.0))
    _, decision = step(GovernorState(), Snapshot(100.0, {"dimms": twice}), POLICY)
    assert decision.proposal.level is Level.CRITICAL


def test_the_lower_limit_of_hardware_and_configuration_counts() -> None:
    strict = ThermalPolicy(sensors={"dimms": SensorPolicy(limit_celsius=70.0)})
    assert step(GovernorState(), at(62.0, 1.0, limit_celsius=85.0), strict)[1].proposal.level is Level.CRITICAL
    assert step(GovernorState(), at(62.0, 1.0, limit_celsius=70.0), POLICY)[1].proposal.level is Level.CRITICAL


@pytest.mark.parametrize("limit", [0.0, 300.0, math.inf, math.nan])
def test_a_limit_that_cannot_be_one_is_not_believed(limit: float) -> None:
    assert step(GovernorState(), at(77.0, 1.0, limit_celsius=limit), POLICY)[1].proposal.level is Level.CRITICAL


def test_hot_is_a_duty_in_proportion_to_what_is_left() -> None:
    duties = [play([celsius])[0].proposal.duty for celsius in (71, 72, 74, 75.9, 76)]
    assert duties == pytest.approx([1.0, 0.9, 0.5, 0.12, 0.0])


def test_warm_ramps_the_fans_up_to_full_at_hot() -> None:
    demands = [play([celsius])[0].proposal.cooling for celsius in (59, 60, 66, 71.999, 72)]
    assert demands == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0], abs=0.01)


def test_a_level_is_left_only_with_the_hysteresis_on_top() -> None:
    assert levels([73, 71, 70, 69.1, 68.9]) == [Level.HOT, Level.HOT, Level.HOT, Level.HOT, Level.WARM]


def test_a_steep_rise_is_hot_before_its_temperature_is() -> None:
    rising = [55 + second for second in range(15)]
    assert Level.HOT in levels(rising)
    assert max(rising) < 72


def test_a_trend_slows_down_but_never_stops() -> None:
    decisions = play([45, 45, 45, 45, 45, 45, 74])
    assert decisions[-1].proposal.level is Level.HOT
    assert decisions[-1].proposal.duty == pytest.approx(POLICY.least_duty)
    assert "rising" in decisions[-1].proposal.reasons[0]


def test_without_sensors_it_is_cool_and_says_so() -> None:
    _, decision = step(GovernorState(), Snapshot(1.0), ThermalPolicy())
    assert (decision.proposal.level, decision.proposal.reasons) == (Level.COOL, ("no sensors",))


def test_the_reason_names_the_worst_point_first() -> None:
    both = (Reading("dimm0", 73.0, 1.0), Reading("dimm1", 79.0, 1.0))
    _, decision = step(GovernorState(), Snapshot(1.0, {"dimms": both}), POLICY)
    assert decision.proposal.reasons[0] == "dimms dimm1 at 79 °C, 6 °C below its limit"
    assert len(decision.proposal.reasons) == 2


def test_the_next_look_comes_sooner_the_closer_the_next_level_is() -> None:
    sleeps = [play([celsius])[0].next_sleep_s for celsius in (45, 59, 59.9)]
    assert sleeps == pytest.approx([1.0, 0.5, 0.1])


def test_the_digest_tells_policies_apart() -> None:
    assert POLICY.digest == ThermalPolicy(sensors={"dimms": SensorPolicy()}).digest
    assert len({POLICY.digest, OPTIONAL.digest, ThermalPolicy(hot_headroom_celsius=14.0).digest}) == 3
