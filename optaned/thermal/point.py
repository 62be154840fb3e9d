"""The state of one point (a DIMM, a channel) and how a reading, or the lack of one, moves it. Knows no other point.

Levels are decided on headroom with hysteresis in °C, and on the headroom that the present trend leaves in a few
seconds. A trend reaches HOT at most. What cannot be undone (TRIP) takes several believed readings, and never follows
from silence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from optaned.domain.thermal import Level, Reading
from optaned.thermal.policy import SensorPolicy, ThermalPolicy
from optaned.thermal.readings import fault_of, limit_of

# Enough for a trend at the shortest tick; older ones go first.
_TREND_READINGS = 128
TOLD_RISE_CELSIUS = 1.0


@dataclass(frozen=True, slots=True)
class PointState:
    """What is remembered of a point. `trend` holds believed (stamp_s, celsius), `evidence` which asked for a TRIP."""

    level: Level = Level.COOL
    duty: float = 1.0
    trend: tuple[tuple[float, float], ...] = ()
    evidence: tuple[bool, ...] = ()
    last_stamp_s: float = -math.inf
    lost_since_s: float | None = None

    @property
    def rise_celsius_per_s(self) -> float:
        """Return the mean rise over the trend; 0 while there are too few readings to tell."""
        if len(self.trend) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self.trend[0], self.trend[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one point asks for. `headroom_celsius` None: nobody knows. `look_again_s`: it cannot get worse before."""

    level: Level
    duty: float
    cooling: float
    reason: str
    headroom_celsius: float | None
    look_again_s: float


def step_point(
    state: PointState, reading: Reading | None, sensor: SensorPolicy, policy: ThermalPolicy, *, now_s: float
) -> tuple[PointState, Verdict]:
    """Return the point's next state and what it asks for. Total: any reading gives an answer."""
    fault = "gives no reading" if reading is None else fault_of(reading, policy, now_s=now_s)
    if fault is not None or reading is None or reading.celsius is None:
        return _lose(state, fault or "gives no reading", sensor, policy, now_s)
    return _follow(state, reading, reading.celsius, limit_of(reading, sensor, policy), policy)


def _lose(
    state: PointState, fault: str, sensor: SensorPolicy, policy: ThermalPolicy, now_s: float
) -> tuple[PointState, Verdict]:
    since_s = now_s if state.lost_since_s is None else state.lost_since_s
    for_s = max(0.0, now_s - since_s)
    is_critical = sensor.required and for_s >= policy.lost_critical_after_s
    level = max(state.level, Level.CRITICAL if is_critical else Level.HOT)
    duty = 0.0 if level >= Level.CRITICAL else min(state.duty, policy.lost_duty)
    reason = f"{fault}, for {for_s:.0f} s" if for_s >= 1 else fault
    # The trend starts anew with the next reading: nobody knows what happened in between.
    lost = replace(state, level=level, duty=duty, trend=(), lost_since_s=since_s)
    return lost, Verdict(level, duty, 1.0, reason, None, policy.tick_s)


def _follow(
    state: PointState, reading: Reading, celsius: float, limit_celsius: float, policy: ThermalPolicy
) -> tuple[PointState, Verdict]:
    headroom = limit_celsius - celsius
    seen = _remember(state, reading.stamp_s, celsius, policy, asks_trip=headroom <= policy.trip_headroom_celsius)
    projected = headroom - _projected_rise(seen, policy)
    level = _level(state.level, headroom, projected, policy, is_confirmed=sum(seen.evidence) >= policy.trip_votes)
    duty = _duty(level, projected, policy)
    where = f"{headroom:.3g} °C below its limit" if headroom > 0 else "at its limit"
    if headroom - projected >= TOLD_RISE_CELSIUS:
        where += f", rising {seen.rise_celsius_per_s:.1f} °C/s"
    verdict = Verdict(
        level=level,
        duty=duty,
        cooling=_cooling(level, projected, policy),
        reason=f"at {celsius:g} °C, {where}",
        headroom_celsius=headroom,
        look_again_s=_look_again_s(level, projected, policy),
    )
    return replace(seen, level=level, duty=duty, lost_since_s=None), verdict


def _remember(
    state: PointState, stamp_s: float, celsius: float, policy: ThermalPolicy, *, asks_trip: bool
) -> PointState:
    """A reading that was seen before proves nothing new."""
    if stamp_s <= state.last_stamp_s:
        return state
    recent = tuple(seen for seen in state.trend if stamp_s - seen[0] <= policy.trend_s)
    return replace(
        state,
        trend=(*recent, (stamp_s, celsius))[-_TREND_READINGS:],
        evidence=(*state.evidence, asks_trip)[-policy.trip_window :],
        last_stamp_s=stamp_s,
    )


def _projected_rise(state: PointState, policy: ThermalPolicy) -> float:
    """Return the °C that the trend adds within the lead; 0 for a falling one, or one too short to tell from noise."""
    if not state.trend or state.trend[-1][0] - state.trend[0][0] < policy.shortest_trend_s:
        return 0.0
    return max(0.0, state.rise_celsius_per_s) * policy.lead_s


def _level(before: Level, headroom: float, projected: float, policy: ThermalPolicy, *, is_confirmed: bool) -> Level:
    if (is_confirmed or before is Level.TRIP) and headroom <= _ends_at(Level.TRIP, before, policy):
        return Level.TRIP
    if headroom <= _ends_at(Level.CRITICAL, before, policy):
        return Level.CRITICAL
    # A trend slows down, it does not stop: a module that is really on its way to CRITICAL is there in a moment.
    by_trend = (Level.HOT, Level.WARM)
    return next((level for level in by_trend if projected <= _ends_at(level, before, policy)), Level.COOL)


def _ends_at(level: Level, before: Level, policy: ThermalPolicy) -> float:
    """Return the headroom above which a level does not hold: further away once it has been reached."""
    return policy.begins_at(level) + (policy.hysteresis_celsius if before >= level else 0.0)


def _duty(level: Level, projected: float, policy: ThermalPolicy) -> float:
    if level >= Level.CRITICAL:
        return 0.0
    if level < Level.HOT:
        return 1.0
    part = _part(projected, policy.critical_headroom_celsius, policy.hot_headroom_celsius)
    return policy.least_duty + part * (policy.most_hot_duty - policy.least_duty)


def _cooling(level: Level, projected: float, policy: ThermalPolicy) -> float:
    if level >= Level.HOT:
        return 1.0
    if level is Level.COOL:
        return 0.0
    return 1.0 - _part(projected, policy.hot_headroom_celsius, policy.warm_headroom_celsius)


def _part(value: float, low: float, high: float) -> float:
    """Return where a value lies between two others: 0 at or below `low`, 1 at or above `high`."""
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else float(value > low)


def _look_again_s(level: Level, projected: float, policy: ThermalPolicy) -> float:
    if level is Level.TRIP:
        return policy.tick_s
    margin = projected - policy.begins_at(Level(level + 1))
    until_s = margin / policy.fastest_rise_celsius_per_s if policy.fastest_rise_celsius_per_s > 0 else math.inf
    return min(max(until_s, policy.shortest_tick_s), policy.tick_s)
