"""The guard's duty for work of our own that heats a tier: copying, measuring. Knows the thermal word, not the work.

The engine is stopped from outside; a command line that copies or reads for minutes asks here between its pieces instead.
Once a guard has been heard, its silence stops the work. Where none has ever spoken there is nobody to obey.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from optaned.domain.thermal import Level
from optaned.system.paths import SYSTEM_WORD, word_path_to_obey
from optaned.system.thermal_word import Silence, ThermalWord, WordReader

# A held worker looks again this often: the guard writes its word about as fast.
LOOK_S = 0.2


def obeyed_word_path() -> Path:
    """Return the word that work on this machine goes by: a living system guard's, else that of a guard by hand."""
    system = WordReader(SYSTEM_WORD)
    try:
        return word_path_to_obey(system_guard_lives=isinstance(system.read(), ThermalWord))
    finally:
        system.close()


def duty_of(said: ThermalWord) -> float:
    """Return the share of time in which work may go on."""
    return 0.0 if said.level >= Level.CRITICAL else min(max(said.duty, 0.0), 1.0)


def rest_s(worked_s: float, duty: float) -> float:
    """Return how long to rest after `worked_s` of work, so that work is `duty` (above 0) of all time."""
    return worked_s * (1.0 - duty) / duty


class DutyGate:
    """What a worker passes between pieces of work of some milliseconds. One gate a thread; not thread-safe.

    `tell(reason)` is called when the work is held or slowed, `tell(None)` when it goes on at full speed. `check` is
    called while waiting, and may raise to give up.
    """

    def __init__(
        self,
        word_path: Path,
        *,
        tell: Callable[[str | None], None] | None = None,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reader = WordReader(word_path)
        self._tell, self._check, self._clock, self._sleep = tell, check, clock, sleep
        self._told: str | None = None
        self._heard = isinstance(self._reader.read(), ThermalWord)
        self._since_s = clock()

    @property
    def is_guarded(self) -> bool:
        """Say whether a guard has spoken since this gate was made."""
        return self._heard

    def pass_through(self) -> None:
        """Return when work may go on; call it after each piece of work."""
        worked_s = self._clock() - self._since_s
        duty = self._ask()
        while duty <= 0:
            self._wait(LOOK_S)
            duty = self._ask()
            worked_s = 0.0
        if duty < 1:
            self._wait(rest_s(worked_s, duty))
        self._check()
        self._since_s = self._clock()

    def _ask(self) -> float:
        said = self._reader.read()
        if isinstance(said, Silence):
            self._say(said.reason if self._heard else None)
            return 0.0 if self._heard else 1.0
        self._heard = True
        duty = duty_of(said)
        slowed = said.reason or f"the guard's duty is {duty:g}"
        self._say(None if duty >= 1 else slowed)
        return duty

    def _say(self, reason: str | None) -> None:
        if self._tell is not None and (reason is None) != (self._told is None):
            self._tell(reason)
        self._told = reason

    def _wait(self, wait_s: float) -> None:
        """Wait in short steps, so that somebody who gives up is heard."""
        until_s = self._clock() + wait_s
        while (left_s := until_s - self._clock()) > 0:
            self._check()
            self._sleep(min(left_s, LOOK_S))

    def close(self) -> None:
        self._reader.close()
