"""Read all sensors, each isolated from the others. Knows drivers, no governor and no policy.

A driver that declares `nonblocking` is read in the guard's loop; any other one has a thread of its own, so that a hung
one is stale readings and delays nobody. A sensor that cannot be opened or read says nothing, with a reason, and is
tried again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optaned.config.lookup import ResolvedDriver
from optaned.domain.thermal import Reading, ReadingState
from optaned.hooks.drivers import Env, Sensor

log = logging.getLogger("optaned.guard.sensors")

# A sensor that failed is given this long before it is opened anew: a broken bus must not be hammered.
REOPEN_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What one sensor said last, or why it said nothing."""

    readings: tuple[Reading, ...] = ()
    fault: str = ""


class SensorPort:
    """One sensor: opens it, reads it, and turns every exception into a reason."""

    def __init__(self, source: ResolvedDriver, env: Env) -> None:
        self.source = source
        self._env = env
        self._sensor: Sensor | None = None
        self._open_at_s = env.clock()
        self._fault = ""

    def read(self) -> Heard:
        """Return what the sensor says now. Never raises."""
        try:
            if self._sensor is None:
                if self._env.clock() < self._open_at_s:
                    return Heard(fault=self._fault)
                self._sensor = self.source.open(self._env)
            heard = Heard(_checked(self._sensor.read()))
        except Exception as error:  # noqa: BLE001  a stranger's driver may raise anything; it becomes the reason
            heard = Heard(fault=f"{type(error).__name__}: {error}")
            self._open_at_s = self._env.clock() + REOPEN_AFTER_S
            self.close()
        self._tell(heard.fault)
        return heard

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            log.warning("sensor %s: %s", self.source.name, fault or "reads again")
        self._fault = fault

    def close(self) -> None:
        sensor, self._sensor = self._sensor, None
        if sensor is None:
            return
        try:
            sensor.close()
        except Exception as error:  # noqa: BLE001  as above
            log.warning("sensor %s: closing it: %s", self.source.name, error)


class ReaderThread:
    """Reads one blocking sensor again and again; `heard` is what it said last, with its own stamps."""

    def __init__(self, port: SensorPort, period_s: float) -> None:
        self._port = port
        self._period_s = period_s
        self._closing = threading.Event()
        self.heard = Heard(fault="has not answered yet")
        # A daemon: a driver that hangs for ever must not keep the guard from ending.
        self._thread = threading.Thread(target=self._run, name=f"sensor-{port.source.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            self.heard = self._port.read()
            self._closing.wait(self._period_s)
        self._port.close()

    def close(self) -> None:
        self._closing.set()


class Sensors:
    """All sensors of a guard."""

    def __init__(
        self, declared: Mapping[str, ResolvedDriver], env: Callable[[ResolvedDriver], Env], *, period_s: float
    ) -> None:
        ports = {name: SensorPort(source, env(source)) for name, source in declared.items()}
        self._direct = {name: port for name, port in ports.items() if port.source.driver.nonblocking}
        self._threads = {name: ReaderThread(port, period_s) for name, port in ports.items() if name not in self._direct}

    def read(self, now_s: float) -> dict[str, tuple[Reading, ...]]:
        """Return each sensor's readings; one that says nothing gives one missing reading with the reason."""
        heard = {name: port.read() for name, port in self._direct.items()}
        heard |= {name: thread.heard for name, thread in self._threads.items()}
        return {name: said.readings or (_missing(said.fault, now_s),) for name, said in sorted(heard.items())}

    def close(self) -> None:
        for port in self._direct.values():
            port.close()
        for thread in self._threads.values():
            thread.close()


def _missing(fault: str, now_s: float) -> Reading:
    return Reading("", None, now_s, ReadingState.MISSING, reason=fault or "gives no readings")


def _checked(readings: object) -> tuple[Reading, ...]:
    if isinstance(readings, (tuple, list)) and all(isinstance(reading, Reading) for reading in readings):
        return tuple(readings)
    raise TypeError(f"read() returned {type(readings).__name__}, not a tuple of readings")
