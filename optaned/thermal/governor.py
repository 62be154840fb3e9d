"""The governor: `step(state, snapshot, policy)` returns the next state and a decision. Pure and total; knows no driver.

Unknown is hot: a sensor that says nothing believable is HOT at once and, where it is required, CRITICAL after 30 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from optaned.domain.thermal import Level, Proposal, Reading, Snapshot
from optaned.thermal.point import PointState, Verdict, step_point
from optaned.thermal.policy import SensorPolicy, ThermalPolicy
from optaned.thermal.readings import worst_by_point

PointKey = tuple[str, str]
# A sensor that was never heard of is not in the configuration: it counts, but nothing depends on its being there.
_UNLISTED = SensorPolicy(required=False)
# Stands for a sensor that has not named a single point yet.
_NAMELESS = ""


@dataclass(frozen=True, slots=True)
class GovernorState:
    """What is remembered from one decision to the next, by (sensor, point)."""

    points: Mapping[PointKey, PointState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What shall be until the next look, which is due in `next_sleep_s`; `headroom_celsius` is the least one known."""

    proposal: Proposal
    next_sleep_s: float
    headroom_celsius: float | None = None


def step(state: GovernorState, snapshot: Snapshot, policy: ThermalPolicy) -> tuple[GovernorState, Decision]:
    """Decide on one snapshot. The worst point decides; every decision carries its reasons, the worst first."""
    points: dict[PointKey, PointState] = {}
    verdicts: list[tuple[PointKey, Verdict]] = []
    for key, reading in _expected(state, snapshot, policy):
        sensor = policy.sensors.get(key[0], _UNLISTED)
        before = state.points.get(key, PointState())
        points[key], verdict = step_point(before, reading, sensor, policy, now_s=snapshot.now_s)
        verdicts.append((key, verdict))
    return GovernorState(points), _decide(verdicts, policy)


def _expected(
    state: GovernorState, snapshot: Snapshot, policy: ThermalPolicy
) -> Iterator[tuple[PointKey, Reading | None]]:
    """Yield every point that speaks or has to: configured sensors, and points that have spoken before."""
    for name in sorted({*policy.sensors, *snapshot.readings, *(sensor for sensor, _ in state.points)}):
        present = worst_by_point(snapshot.readings.get(name, ()), policy, now_s=snapshot.now_s)
        known = {point for sensor, point in state.points if sensor == name and point != _NAMELESS}
        for point in sorted({*present, *known} or {_NAMELESS}):
            yield (name, point), present.get(point)


def _decide(verdicts: list[tuple[PointKey, Verdict]], policy: ThermalPolicy) -> Decision:
    if not verdicts:
        return Decision(Proposal(Level.COOL, 1.0, 0.0, ("no sensors",)), policy.tick_s)
    ranked = sorted(verdicts, key=lambda item: _urgency(item[1]), reverse=True)
    told = [item for item in ranked if item[1].level >= Level.WARM] or ranked[:1]
    proposal = Proposal(
        level=max(verdict.level for _, verdict in verdicts),
        duty=min(verdict.duty for _, verdict in verdicts),
        cooling=max(verdict.cooling for _, verdict in verdicts),
        reasons=tuple(f"{_spell(key)} {verdict.reason}" for key, verdict in told),
    )
    headrooms = [verdict.headroom_celsius for _, verdict in verdicts if verdict.headroom_celsius is not None]
    sleep_s = min(verdict.look_again_s for _, verdict in verdicts)
    return Decision(proposal, sleep_s, min(headrooms, default=None))


def _urgency(verdict: Verdict) -> tuple[Level, float, float]:
    headroom = float("-inf") if verdict.headroom_celsius is None else verdict.headroom_celsius
    return verdict.level, -verdict.duty, -headroom


def _spell(key: PointKey) -> str:
    sensor, point = key
    return f"{sensor} {point}" if point and point != sensor else sensor
