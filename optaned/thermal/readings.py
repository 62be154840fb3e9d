"""What a reading is worth: believed, or not and why. Knows one reading at a time, no level and no history."""

from __future__ import annotations

import math
from collections.abc import Iterable

from optaned.domain.thermal import Reading, ReadingState
from optaned.thermal.policy import SensorPolicy, ThermalPolicy

# A powered DIMM is never at 0 °C, but a dead sensor often says so; above 125 °C all of them are long off.
PLAUSIBLE_CELSIUS = (1.0, 125.0)
# Stamps come from the same monotonic clock; a later one than now means a broken driver.
_FUTURE_S = 1.0


def fault_of(reading: Reading, policy: ThermalPolicy, *, now_s: float) -> str | None:
    """Return why a reading cannot be believed, in words for people; None for a good one."""
    if reading.state is not ReadingState.OK or reading.celsius is None:
        state = ReadingState.MISSING if reading.state is ReadingState.OK else reading.state
        return f"{state.value}: {reading.reason}" if reading.reason else state.value
    low, high = PLAUSIBLE_CELSIUS
    if not low <= reading.celsius <= high:  # false for NaN, too
        return f"says {reading.celsius:g} °C, which cannot be"
    age_s = now_s - reading.stamp_s
    if not -_FUTURE_S <= age_s <= policy.stale_after_s:
        return f"is {age_s:.1f} s old" if age_s > 0 else "is stamped in the future"
    return None


def limit_of(reading: Reading, sensor: SensorPolicy, policy: ThermalPolicy) -> float:
    """Return the temperature that this point must stay below: the lower of hardware's and configuration's, in °C."""
    said = (reading.limit_celsius, sensor.limit_celsius)
    plausible = [limit for limit in said if limit is not None and is_plausible_limit(limit)]
    return min(plausible, default=policy.default_limit_celsius)


def is_plausible_limit(celsius: float) -> bool:
    """Say whether a limit can be one: hardware that has none set says 0 or a huge number."""
    low, high = PLAUSIBLE_CELSIUS
    return math.isfinite(celsius) and low <= celsius <= high


def worst_by_point(readings: Iterable[Reading], policy: ThermalPolicy, *, now_s: float) -> dict[str, Reading]:
    """Return one reading a point; of several, an unbelievable one wins, then the hottest."""
    worst: dict[str, Reading] = {}
    for reading in readings:
        known = worst.get(reading.point)
        if known is None or _badness(reading, policy, now_s) > _badness(known, policy, now_s):
            worst[reading.point] = reading
    return worst


def _badness(reading: Reading, policy: ThermalPolicy, now_s: float) -> float:
    if reading.celsius is None or fault_of(reading, policy, now_s=now_s) is not None:
        return math.inf
    return reading.celsius
