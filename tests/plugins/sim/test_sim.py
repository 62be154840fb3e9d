"""The simulated sensor and fan, on a clock of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from optaned.api import Env, ReadingState, Sensor
from optaned_sim import optaned_coolers, optaned_sensors


class Clock:
    def __init__(self) -> None:
        self.now_s = 500.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sensor(clock: Clock, sysroot: Path = Path("/"), **options: Any) -> Sensor:
    (driver,) = optaned_sensors()
    made: Sensor = driver.open("dimms", driver.options(**options), Env(sysroot=sysroot, clock=clock))
    return made


def celsius(source: Sensor) -> float | None:
    return source.read()[0].celsius


def test_every_point_has_the_constant_temperature_the_limit_and_the_clocks_stamp(clock: Clock) -> None:
    readings = sensor(clock, points=["a", "b"], celsius=41.5).read()
    assert [(r.point, r.celsius, r.stamp_s, r.limit_celsius) for r in readings] == [
        ("a", 41.5, 500.0, 85.0),
        ("b", 41.5, 500.0, 85.0),
    ]
    assert all(reading.is_valid for reading in readings)


def test_a_script_is_straight_lines_over_time_and_its_last_point_stays(clock: Clock) -> None:
    source = sensor(clock, script=[[10, 40], [20, 60], [20.5, 30]])
    course = []
    for elapsed_s in (0, 10, 15, 20, 20.25, 999):
        clock.now_s = 500.0 + elapsed_s
        course.append(celsius(source))
    assert course == [40, 40, 50, 60, 45, 30]


def test_a_file_heats_by_hand(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/temperature").write_text("79\n")
    source = sensor(clock, tmp_path, file=Path("/run/temperature"))
    assert celsius(source) == 79
    (tmp_path / "run/temperature").write_text("44.5")
    assert celsius(source) == 44.5


@pytest.mark.parametrize("text", [None, "", "hot", "12 13", "\x00"])
def test_a_file_without_a_number_is_no_valid_reading_and_says_why(
    clock: Clock, tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "temperature").write_text(text)
    (reading,) = sensor(clock, tmp_path, file=Path("/temperature")).read()
    assert reading.state is ReadingState.INVALID
    assert "temperature: " in reading.reason


@pytest.mark.parametrize(
    "options",
    [
        {"points": []},
        {"celsius": 79000},
        {"script": [[1, 2, 3]]},
        {"script": [[1, 40], [1, 50]]},
        {"file": "relative"},
        {"file": "/t", "script": [[0, 40]]},
        {"colour": "red"},
    ],
)
def test_options_that_make_no_sense_are_refused(clock: Clock, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        sensor(clock, **options)


def test_a_fan_does_as_told_and_says_so(tmp_path: Path) -> None:
    (driver,) = optaned_coolers()
    in_memory = driver.open("fan", driver.options(), Env())
    assert in_memory.drive(0.25).read_back == 0.25
    on_disk = driver.open("fan", driver.options(file="/fan"), Env(sysroot=tmp_path))
    assert on_disk.drive(0.5).read_back == 0.5
    on_disk.release()
    assert (tmp_path / "fan").read_text() == "1.0000\n"


def test_a_fan_whose_file_cannot_be_written_fails(tmp_path: Path) -> None:
    (driver,) = optaned_coolers()
    with pytest.raises(OSError, match="No such file"):
        driver.open("fan", driver.options(file="/missing/fan"), Env(sysroot=tmp_path)).drive(0.5)
