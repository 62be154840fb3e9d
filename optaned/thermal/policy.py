"""What the governor decides by, in °C of headroom and in seconds. Knows no reading and no configuration file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from optaned.domain.thermal import Level


@dataclass(frozen=True, slots=True)
class SensorPolicy:
    """One `[sensors.NAME]` table. Of `limit_celsius` and what the hardware itself says, the lower one counts."""

    required: bool = True
    limit_celsius: float | None = None


@dataclass(frozen=True, slots=True)
class ThermalPolicy:
    """Headrooms are °C below each sensor's own limit: where the next level begins.

    `trip_votes` of the last `trip_window` readings of one point must agree before a TRIP. `fastest_rise_celsius_per_s`
    is the steepest rise that is credible between two looks; `lead_s` is how far ahead the trend is projected.
    """

    warm_headroom_celsius: float = 25.0
    hot_headroom_celsius: float = 13.0
    critical_headroom_celsius: float = 9.0
    trip_headroom_celsius: float = 5.0
    hysteresis_celsius: float = 3.0
    default_limit_celsius: float = 85.0
    stale_after_s: float = 2.0
    lost_critical_after_s: float = 30.0
    lost_duty: float = 0.5
    trip_votes: int = 3
    trip_window: int = 5
    tick_s: float = 1.0
    shortest_tick_s: float = 0.1
    fastest_rise_celsius_per_s: float = 2.0
    trend_s: float = 10.0
    shortest_trend_s: float = 5.0
    lead_s: float = 5.0
    least_duty: float = 0.1
    most_hot_duty: float = 0.9
    sensors: Mapping[str, SensorPolicy] = field(default_factory=dict)

    def begins_at(self, level: Level) -> float:
        """Return the headroom at and below which a level begins, in °C; infinite for COOL."""
        return (
            float("inf"),
            self.warm_headroom_celsius,
            self.hot_headroom_celsius,
            self.critical_headroom_celsius,
            self.trip_headroom_celsius,
        )[level]

    @property
    def digest(self) -> bytes:
        """Return 32 bytes that differ when any value differs; the guard publishes them with each word."""
        plain = [(f.name, getattr(self, f.name)) for f in fields(self) if f.name != "sensors"]
        return hashlib.blake2b(repr((plain, sorted(self.sensors.items(), key=str))).encode(), digest_size=32).digest()
