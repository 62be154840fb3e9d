"""The server's brake: the duty, silence, and who resumes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.thermal import Level
from optaned.server.stopper import Stopper, may_run, order_from, until_edge_s
from optaned.system.boottime import boottime_s
from optaned.system.thermal_word import Silence, ThermalWord, WordWriter
from optaned.testing.daemon import eventually
from optaned.testing.processes import Busy, busy_child


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def word(level: Level = Level.COOL, duty: float = 1.0, *, valid_s: float = 600.0) -> ThermalWord:
    now_s = boottime_s()
    return ThermalWord(level, duty, f"told {level.name}", now_s, now_s + valid_s)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "thermal.word"


@pytest.fixture
def guard(path: Path) -> Iterator[WordWriter]:
    writer = WordWriter(path)
    writer.write(word())
    yield writer
    writer.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stopper(path: Path, clock: Clock) -> Iterator[Stopper]:
    stopper = Stopper(path, clock=clock)
    yield stopper
    stopper.close()


@pytest.fixture
def engine(stopper: Stopper) -> Iterator[Busy]:
    with busy_child() as engine:
        stopper.attach(engine.pid)
        yield engine


def test_critical_stops_the_engine_and_a_fresh_word_below_it_resumes(
    engine: Busy, stopper: Stopper, guard: WordWriter
) -> None:
    stopper.start()
    assert engine.runs()
    guard.write(word(Level.CRITICAL, 0.0))
    eventually(engine.stands_still)
    guard.write(word(Level.WARM))
    eventually(engine.runs)


def test_silence_stops_the_engine_and_a_word_resumes_it(engine: Busy, stopper: Stopper, guard: WordWriter) -> None:
    stopper.start()
    guard.write(word(valid_s=0.05))
    eventually(engine.stands_still)
    assert stopper.view.level is None
    assert "the guard is silent" in stopper.view.reason
    guard.write(word())
    eventually(engine.runs)


def test_whoever_stopped_it_the_server_resumes(engine: Busy, stopper: Stopper, guard: WordWriter) -> None:
    engine.stop()
    eventually(engine.stands_still)
    stopper.start()
    eventually(engine.runs)


def test_hot_is_a_share_of_each_period_the_still_part_first(
    engine: Busy, stopper: Stopper, guard: WordWriter, clock: Clock
) -> None:
    guard.write(word(Level.HOT, 0.25))
    for elapsed_s, stands in (
        (0.0, True),
        (0.74, True),
        (0.76, False),
        (0.99, False),
        (1.0, True),
        (1.5, True),
        (1.8, False),
    ):
        clock.now_s = 1000.0 + elapsed_s
        stopper.look()
        eventually(lambda stands=stands: (engine.state == "T") is stands)
    assert not stopper.view.paused


def test_a_level_of_critical_stands_for_no_duty_whatever_the_word_says(
    engine: Busy, stopper: Stopper, guard: WordWriter
) -> None:
    guard.write(word(Level.TRIP, 1.0))
    stopper.look()
    eventually(engine.stands_still)
    assert stopper.view.paused


def test_an_engine_that_dies_or_is_replaced_is_no_trouble(stopper: Stopper, guard: WordWriter) -> None:
    with busy_child() as first:
        stopper.attach(first.pid)
        os.kill(first.pid, signal.SIGKILL)
        first.process.wait()
        guard.write(word(Level.CRITICAL, 0.0))
        stopper.look()
    with busy_child() as second:
        stopper.attach(second.pid)
        stopper.look()
        eventually(second.stands_still)
    with pytest.raises(ProcessLookupError):
        stopper.attach(2**22 + 1)


def test_it_never_resumes_on_its_way_out(engine: Busy, stopper: Stopper, guard: WordWriter) -> None:
    stopper.start()
    guard.write(word(Level.CRITICAL, 0.0))
    eventually(engine.stands_still)
    stopper.close()
    guard.write(word())
    assert engine.stands_still()


def test_the_view_tells_level_reason_age_and_since_when(stopper: Stopper, guard: WordWriter, clock: Clock) -> None:
    guard.write(word(Level.HOT, 0.5))
    stopper.look()
    first = stopper.view
    assert (first.level, first.duty, first.reason, first.paused) == (Level.HOT, 0.5, "told HOT", False)
    assert first.word_age_s is not None
    clock.now_s += 5
    stopper.look()
    assert stopper.view.since_s == first.since_s == 1000.0
    guard.write(word(Level.CRITICAL, 0.0))
    stopper.look()
    assert (stopper.view.since_s, stopper.view.paused) == (1005.0, True)


def test_before_the_first_word_it_is_paused(stopper: Stopper) -> None:
    assert stopper.view.paused
    assert stopper.look() > 0
    assert "no word" in stopper.view.reason or "No such file" in stopper.view.reason


@given(st.floats(0, 1), st.floats(0, 10_000))
def test_the_edge_is_where_the_answer_changes(duty: float, elapsed_s: float) -> None:
    until_s = until_edge_s(duty, elapsed_s, 1.0)
    assert 0 < until_s <= 1
    if 0.01 < duty < 0.99 and until_s > 0.001:
        runs = may_run(duty, elapsed_s, 1.0)
        assert may_run(duty, elapsed_s + until_s - 0.0005, 1.0) is runs
        assert may_run(duty, elapsed_s + until_s + 0.0005, 1.0) is not runs


@given(st.floats(0, 1))
def test_the_share_of_a_period_is_the_duty(duty: float) -> None:
    moments = [step / 1000 for step in range(1000)]
    assert sum(may_run(duty, moment, 1.0) for moment in moments) / 1000 == pytest.approx(duty, abs=0.002)


@given(st.sampled_from(Level), st.floats(allow_nan=False))
def test_an_order_is_never_more_than_its_level_allows(level: Level, duty: float) -> None:
    order = order_from(replace(word(level), duty=duty), now_s=boottime_s())
    assert 0 <= order.duty <= 1
    assert order.is_paused == (order.duty == 0)
    assert level < Level.CRITICAL or order.is_paused
    assert order_from(Silence("quiet", 3.0), now_s=0.0).is_paused
