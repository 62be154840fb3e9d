"""Drive all coolers, each isolated from the others. Knows drivers, no temperature.

One dead fan sets the others to full. Drivers are called in the guard's loop, after the word has been written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from optaned.config.lookup import ResolvedDriver
from optaned.hooks.drivers import Cooler, Driven, Env

log = logging.getLogger("optaned.guard.coolers")

FULL = 1.0


class CoolerPort:
    """One cooler: opens it, drives it, and turns every exception into a fault."""

    def __init__(self, source: ResolvedDriver, env: Env) -> None:
        self.source = source
        self._env = env
        self._cooler: Cooler | None = None
        self.driven: Driven | None = None
        self.fault = ""

    def drive(self, demand: float) -> bool:
        """Set a demand; False when that failed. Never raises."""
        before = self.fault
        try:
            if self._cooler is None:
                self._cooler = self.source.open(self._env)
            self.driven, self.fault = self._cooler.drive(demand), ""
        except Exception as error:  # noqa: BLE001  a stranger's driver may raise anything; it becomes the fault
            self.driven, self.fault = None, f"{type(error).__name__}: {error}"
            self._cooler = None
        if self.fault != before:
            log.warning("cooler %s: %s", self.source.name, self.fault or "obeys again")
        return not self.fault

    def release(self) -> None:
        """Leave the fans at full, as well as that can be done."""
        try:
            if self._cooler is not None:
                self._cooler.release()
        except Exception as error:  # noqa: BLE001  as above
            log.warning("cooler %s: releasing it: %s", self.source.name, error)


class Coolers:
    """All coolers of a guard."""

    def __init__(self, declared: Mapping[str, ResolvedDriver], env: Callable[[ResolvedDriver], Env]) -> None:
        self.ports = tuple(CoolerPort(source, env(source)) for _, source in sorted(declared.items()))

    def drive(self, demand: float) -> tuple[str, ...]:
        """Set a demand (0 to 1) everywhere and return the names of those that failed; then the others run at full."""
        dead = tuple(port.source.name for port in self.ports if not port.drive(demand))
        if dead and demand < FULL:
            for port in self.ports:
                if not port.fault:
                    port.drive(FULL)
        return dead

    def release(self) -> None:
        for port in self.ports:
            port.release()
