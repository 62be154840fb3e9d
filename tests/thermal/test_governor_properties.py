"""What holds for the governor whatever is read: total, monotone, calm within its hysteresis; unknown never cools."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.thermal import Level, Reading, ReadingState, Snapshot
from optaned.thermal.governor import Decision, GovernorState, step
from optaned.thermal.policy import SensorPolicy, ThermalPolicy

POLICY = ThermalPolicy(sensors={"dimms": SensorPolicy(), "air": SensorPolicy(required=False)})

anything = st.floats(allow_nan=True, allow_infinity=True)
readings = st.builds(
    Reading,
    point=st.sampled_from(["dimm0", "dimm1", ""]),
    celsius=st.none() | anything | st.floats(20, 100),
    stamp_s=anything | st.floats(0, 1000),
    state=st.sampled_from(ReadingState),
    limit_celsius=st.none() | anything,
    reason=st.text(max_size=10),
)
snapshots = st.builds(
    Snapshot,
    now_s=anything | st.floats(0, 1000),
    readings=st.dictionaries(
        st.sampled_from(["dimms", "air", "stranger"]), st.lists(readings, max_size=4).map(tuple), max_size=3
    ),
)
courses = st.lists(st.floats(30, 90), min_size=1, max_size=20)


def follow(course: list[float | None], policy: ThermalPolicy = POLICY) -> tuple[GovernorState, list[Decision]]:
    state, decisions = GovernorState(), []
    for second, celsius in enumerate(course):
        now_s = 100.0 + second
        air = (Reading("inlet", 30.0, now_s),)
        dimms = () if celsius is None else (Reading("dimm0", celsius, now_s),)
        state, decision = step(state, Snapshot(now_s, {"dimms": dimms, "air": air}), policy)
        decisions.append(decision)
    return state, decisions


@given(st.lists(snapshots, max_size=8))
def test_any_sequence_of_snapshots_gives_decisions_that_can_be_obeyed(sequence: list[Snapshot]) -> None:
    state = GovernorState()
    for snapshot in sequence:
        state, decision = step(state, snapshot, POLICY)
        proposal = decision.proposal
        assert 0 <= proposal.duty <= 1
        assert 0 <= proposal.cooling <= 1
        assert POLICY.shortest_tick_s <= decision.next_sleep_s <= POLICY.tick_s
        assert proposal.reasons
        assert all(proposal.reasons)
        assert (proposal.duty == 0) == (proposal.level >= Level.CRITICAL)
        assert proposal.level < Level.HOT or proposal.cooling == 1
        assert proposal.level < Level.HOT or proposal.duty < 1


@given(courses, st.floats(30, 90), st.floats(0, 20))
def test_hotter_is_never_less_urgent(course: list[float], celsius: float, more: float) -> None:
    *_, cooler = follow([*course, celsius])[1]
    *_, hotter = follow([*course, celsius + more])[1]
    assert hotter.proposal.level >= cooler.proposal.level
    assert hotter.proposal.duty <= cooler.proposal.duty
    assert hotter.proposal.cooling >= cooler.proposal.cooling
    assert hotter.next_sleep_s <= cooler.next_sleep_s or hotter.proposal.level > cooler.proposal.level


@given(courses, st.integers(1, 40))
def test_losing_the_reading_never_cools(course: list[float], lost_s: int) -> None:
    known = follow(list(course))[1][-1].proposal
    unknown = follow([*course, *[None] * lost_s])[1][-1].proposal
    assert unknown.level >= max(known.level, Level.HOT)
    assert unknown.duty <= known.duty
    assert unknown.cooling == 1.0


@given(st.lists(st.none() | st.just(0.0) | st.just(math.inf) | st.floats(30, 79.9), max_size=60))
def test_only_believed_readings_below_the_trip_headroom_ever_trip(course: list[float | None]) -> None:
    assert all(decision.proposal.level < Level.TRIP for decision in follow(course)[1])


@given(st.floats(40, 84), st.lists(st.floats(0, POLICY.hysteresis_celsius / 2), min_size=2, max_size=60))
def test_noise_of_half_the_hysteresis_never_flaps(base: float, noise: list[float]) -> None:
    met = [decision.proposal.level for decision in follow([base + extra for extra in noise])[1]]
    assert met == sorted(met)
