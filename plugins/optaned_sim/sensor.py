"""The simulated sensor: what it says follows from its options and the clock alone. Knows no fan and no load."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from optaned.api import Celsius, Env, Options, Reading, ReadingState


class SimSensorOptions(Options):
    """`[sensors.NAME] driver = "sim"`: the temperature comes from `file`, else from `script`, else it is `celsius`."""

    points: list[str] = Field(default=["dimm0"], min_length=1)
    """Names of the simulated DIMMs; all have the same temperature."""
    celsius: Celsius = 45.0
    """The temperature that stays."""
    script: list[list[float]] = Field(default=[])
    """Points `[seconds, °C]` since the start, joined by straight lines; the last one stays."""
    file: Path | None = Field(default=None, strict=False)
    """A file whose only number is the temperature: `echo 79 > FILE` heats. Without it there is no valid reading."""
    limit_celsius: Celsius = 85.0
    """The simulated hardware's own limit."""

    @field_validator("script")
    @classmethod
    def _is_a_course(cls, script: list[list[float]]) -> list[list[float]]:
        if any(len(step) != 2 for step in script):
            raise ValueError("each step is a pair [seconds, °C]")
        if any(later[0] <= earlier[0] for earlier, later in pairwise(script)):
            raise ValueError("the seconds of the steps must rise")
        return script

    @field_validator("file")
    @classmethod
    def _is_absolute(cls, file: Path | None) -> Path | None:
        if file is not None and not file.is_absolute():
            raise ValueError(f'"{file}" must be an absolute path')
        return file

    @model_validator(mode="after")
    def _has_one_source(self) -> SimSensorOptions:
        if self.file is not None and self.script:
            raise ValueError("give a file or a script, not both")
        return self


class SimSensor:
    """Gives every point the same temperature."""

    def __init__(self, options: SimSensorOptions, env: Env) -> None:
        self._options = options
        self._env = env
        self._began_s = env.clock()

    def read(self) -> tuple[Reading, ...]:
        """Return one reading a point, stamped now; invalid ones say why."""
        now_s = self._env.clock()
        celsius, fault = self._measure(now_s - self._began_s)
        state = ReadingState.INVALID if fault else ReadingState.OK
        limit = self._options.limit_celsius
        return tuple(Reading(point, celsius, now_s, state, limit, fault) for point in self._options.points)

    def _measure(self, elapsed_s: float) -> tuple[float | None, str]:
        if self._options.file is not None:
            return _from_file(self._env.path(self._options.file))
        if self._options.script:
            return _from_script(self._options.script, elapsed_s), ""
        return self._options.celsius, ""

    def close(self) -> None: ...


def open_sensor(name: str, options: SimSensorOptions, env: Env) -> SimSensor:  # noqa: ARG001  the contract of `open`
    """Return the sensor of one `[sensors.NAME]` table; its script begins now."""
    return SimSensor(options, env)


def _from_file(path: Path) -> tuple[float | None, str]:
    try:
        text = path.read_text("utf-8", errors="replace").strip()
    except OSError as error:
        return None, f"{path}: {error.strerror}"
    try:
        return float(text), ""
    except ValueError:
        return None, f"{path}: no number: {text[:20]!r}"


def _from_script(script: list[list[float]], elapsed_s: float) -> float:
    after = bisect_right(script, elapsed_s, key=lambda step: step[0])
    if after == 0:
        return script[0][1]
    if after == len(script):
        return script[-1][1]
    (from_s, from_celsius), (to_s, to_celsius) = script[after - 1], script[after]
    return from_celsius + (to_celsius - from_celsius) * (elapsed_s - from_s) / (to_s - from_s)
