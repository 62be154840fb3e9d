"""Reading sensors: one that raises, lies or hangs costs itself a reading and the others nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from optaned.config.lookup import ResolvedDriver
from optaned.domain.thermal import Reading, ReadingState
from optaned.guard.sensing import REOPEN_AFTER_S, Sensors
from optaned.hooks.drivers import Driver, Env, Options
from optaned.testing.daemon import eventually


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Fake:
    """A sensor that does what its function says."""

    def __init__(self, read: Callable[[], object]) -> None:
        self._read = read
        self.opened = 0
        self.closed = 0

    def open(self, name: str, options: Options, env: Env) -> Fake:
        self.opened += 1
        return self

    def read(self) -> object:
        return self._read()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watch(clock: Clock, *, nonblocking: bool = True, **fakes: Fake) -> Sensors:
    declared = {
        name: ResolvedDriver(name, Driver("fake", Options, fake.open, nonblocking=nonblocking), Options())
        for name, fake in fakes.items()
    }
    return Sensors(declared, lambda source: Env(clock=clock), period_s=0.01)


def cool() -> tuple[Reading, ...]:
    return (Reading("dimm0", 45.0, 100.0),)


def broken() -> tuple[Reading, ...]:
    raise ZeroDivisionError("bad driver")


def test_a_broken_sensor_is_missing_with_its_reason_and_the_others_are_read(clock: Clock) -> None:
    readings = watch(clock, good=Fake(cool), bad=Fake(broken), liar=Fake(lambda: "45"), empty=Fake(tuple)).read(100.0)
    assert readings["good"] == cool()
    for name, reason in (("bad", "ZeroDivisionError"), ("liar", "returned str"), ("empty", "gives no readings")):
        (reading,) = readings[name]
        assert reading.state is ReadingState.MISSING
        assert reason in reading.reason


def test_a_broken_sensor_is_closed_and_opened_anew_after_a_while(clock: Clock) -> None:
    bad = Fake(broken)
    sensors = watch(clock, bad=bad)
    for _ in range(5):
        sensors.read(clock.now_s)
    assert (bad.opened, bad.closed) == (1, 1)
    clock.now_s += REOPEN_AFTER_S
    sensors.read(clock.now_s)
    assert bad.opened == 2


def test_a_sensor_that_can_be_read_again_is_read_again(clock: Clock) -> None:
    answers: list[Callable[[], object]] = [broken, cool]
    sensors = watch(clock, flaky=Fake(lambda: answers.pop(0)()))
    sensors.read(clock.now_s)
    clock.now_s += REOPEN_AFTER_S
    assert sensors.read(clock.now_s)["flaky"] == cool()


def test_a_sensor_that_hangs_delays_nobody(clock: Clock) -> None:
    release = threading.Event()

    def hang() -> tuple[Reading, ...]:
        release.wait(60)
        return cool()

    sensors = watch(clock, nonblocking=False, slow=Fake(hang), quick=Fake(cool))
    eventually(lambda: sensors.read(100.0)["quick"] == cool())
    (reading,) = sensors.read(100.0)["slow"]
    assert reading.reason == "has not answered yet"
    release.set()
    eventually(lambda: sensors.read(100.0)["slow"] == cool())
    sensors.close()


def test_a_blocking_sensor_is_closed_by_its_own_thread(clock: Clock) -> None:
    slow = Fake(cool)
    sensors = watch(clock, nonblocking=False, slow=slow)
    eventually(lambda: sensors.read(100.0)["slow"] == cool())
    sensors.close()
    eventually(lambda: slow.closed)
