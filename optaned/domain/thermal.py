"""Temperatures, levels and decisions as records. Knows no sensor, no fan and no clock; times are passed in."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class ReadingState(enum.StrEnum):
    """How far a reading can be believed. Everything but `ok` counts as hot."""

    OK = "ok"
    INVALID = "invalid"
    STALE = "stale"
    MISSING = "missing"
    SUSPECT = "suspect"


@dataclass(frozen=True, slots=True)
class Reading:
    """One point's temperature. `stamp_s` is monotonic; `limit_celsius` is the hardware's own shutdown temperature."""

    point: str
    celsius: float | None
    stamp_s: float
    state: ReadingState = ReadingState.OK
    limit_celsius: float | None = None
    reason: str = ""

    @property
    def is_valid(self) -> bool:
        return self.state is ReadingState.OK and self.celsius is not None


class Level(enum.IntEnum):
    """How hot it is, in the order of urgency."""

    COOL = 0
    WARM = 1
    HOT = 2
    CRITICAL = 3
    TRIP = 4


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that was read for one decision: readings by sensor table, and the monotonic time of the decision."""

    now_s: float
    readings: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What shall happen until the next decision: level, duty of the engine (0 to 1), cooling demand (0 to 1), and why."""

    level: Level
    duty: float
    cooling: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vote:
    """A plugin's wish. None leaves a value as proposed; a vote can only cool."""

    level: Level | None = None
    duty: float | None = None
    cooling: float | None = None
    reason: str = ""
