"""Work of our own keeps to the guard's duty, and stands still when a guard that was there falls silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.thermal import Level
from optaned.system.boottime import boottime_s
from optaned.system.duty import DutyGate, duty_of, rest_s
from optaned.system.thermal_word import ThermalWord, WordWriter


class Stopped(Exception):
    pass


class Time:
    """A clock that only sleeping moves; whoever sleeps longer than `limit_s` is stuck."""

    def __init__(self, limit_s: float = 60.0) -> None:
        self.now_s = 0.0
        self.limit_s = limit_s
        self.at: list[tuple[float, Callable[[], None]]] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s
        for moment_s, act in self.at:
            if moment_s <= self.now_s:
                act()

    def check(self) -> None:
        if self.now_s > self.limit_s:
            raise Stopped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "guard" / "thermal.word"


def word(level: Level = Level.COOL, duty: float = 1.0, *, reason: str = "", valid_s: float = 60.0) -> ThermalWord:
    now_s = boottime_s()
    return ThermalWord(level, duty, reason, now_s, now_s + valid_s)


def gate(path: Path, time: Time, told: list[str | None]) -> DutyGate:
    return DutyGate(path, tell=told.append, check=time.check, clock=time.clock, sleep=time.sleep)


def test_without_a_guard_nothing_is_obeyed(path: Path) -> None:
    time, told = Time(), list[str | None]()
    passing = gate(path, time, told)
    passing.pass_through()
    assert (time.now_s, told, passing.is_guarded) == (0.0, [], False)


def test_a_duty_of_a_quarter_rests_three_times_as_long_as_it_worked(path: Path) -> None:
    time, told = Time(), list[str | None]()
    writer = WordWriter(path)
    writer.write(word(Level.HOT, 0.25, reason="dimm3 at 73 °C"))
    passing = gate(path, time, told)
    time.now_s = 1.0
    passing.pass_through()
    assert time.now_s == pytest.approx(4.0)
    assert told == ["dimm3 at 73 °C"]
    writer.close()


@pytest.mark.parametrize(("level", "duty"), [(Level.CRITICAL, 1.0), (Level.HOT, 0.0)])
def test_work_stands_still_until_the_word_is_cool_again(path: Path, level: Level, duty: float) -> None:
    time, told = Time(), list[str | None]()
    writer = WordWriter(path)
    writer.write(word(level, duty, reason="77 °C"))
    passing = gate(path, time, told)
    time.at.append((5.0, lambda: writer.write(word())))
    passing.pass_through()
    assert 5.0 <= time.now_s < 6.0
    assert told == ["77 °C", None]
    writer.close()


def test_a_guard_that_falls_silent_stops_the_work(path: Path) -> None:
    time, told = Time(limit_s=30.0), list[str | None]()
    writer = WordWriter(path)
    writer.write(word())
    passing = gate(path, time, told)
    passing.pass_through()
    writer.write(word(valid_s=-1.0))
    with pytest.raises(Stopped):
        passing.pass_through()
    assert told[0] is not None
    assert told[0].startswith("the guard is silent")
    writer.close()


def test_a_guard_that_comes_while_work_goes_on_is_obeyed(path: Path) -> None:
    time, told = Time(limit_s=5.0), list[str | None]()
    passing = gate(path, time, told)
    passing.pass_through()
    writer = WordWriter(path)
    writer.write(word(Level.CRITICAL, 0.0))
    with pytest.raises(Stopped):
        passing.pass_through()
    assert passing.is_guarded
    writer.close()


@given(st.floats(1e-6, 100), st.floats(0.01, 1))
def test_work_is_the_duty_s_share_of_all_time(worked_s: float, duty: float) -> None:
    assert worked_s / (worked_s + rest_s(worked_s, duty)) == pytest.approx(duty)


@given(st.sampled_from(Level), st.floats(0, 1))
def test_from_critical_on_there_is_no_duty(level: Level, duty: float) -> None:
    said = ThermalWord(level, duty, "", 0.0, 1.0)
    assert duty_of(said) == (duty if level < Level.CRITICAL else 0.0)
