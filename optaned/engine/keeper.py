"""Keeps one worker alive: starts it, starts it again after a death, and gives up when that does not help.

Knows deaths and delays; what a death means for requests is the listener's business.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from optaned.engine.client import Child
from optaned.engine.messages import FromWorker, Open, Opened, Refused, ToWorker
from optaned.engine.surroundings import surroundings
from optaned.errors import OptanedError, UnavailableError

log = logging.getLogger("optaned.server")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how soon a worker is started again. `max_deaths` counts deaths in a row without progress.

    A worker that was open for `settled_s` has shown that it can live: five deaths months apart are no row.
    """

    first_delay_s: float = 0.2
    max_delay_s: float = 30.0
    max_deaths: int = 5
    settled_s: float = 600.0

    def delay_s(self, deaths: int) -> float | None:
        """Return how long to wait after this many deaths in a row; None to give up."""
        if deaths >= self.max_deaths:
            return None
        return float(min(self.max_delay_s, self.first_delay_s * 2 ** (deaths - 1)))


class Listener(Protocol):
    """Hears what becomes of a worker; called in the event loop, must not block."""

    def spawned(self, pid: int) -> None: ...

    def message(self, message: FromWorker) -> None: ...

    def died(self, reason: str, *, delay_s: float) -> None:
        """It is dead and will be started again after `delay_s`."""

    def refused(self, refusal: Refused) -> None:
        """It cannot do what it was asked to, and will not be started again."""

    def gave_up(self, reason: str, *, deaths: int) -> None:
        """It died too often in a row without any progress."""


class Keeper:
    """One worker's lives, from `start` to `stop`."""

    def __init__(
        self,
        wanted: Open,
        listener: Listener,
        *,
        patience: Patience = Patience(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanted = wanted
        self._listener = listener
        self._patience = patience
        self._task: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self._clock = clock
        self._refusal: Refused | None = None
        self._opened_s: float | None = None
        self._was_open = False
        self._progressed = False
        self._muted = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name=f"keep {self._wanted.role}")
        self._task.add_done_callback(_report)

    def send(self, message: ToWorker) -> None:
        """Say something to the worker of the moment; lost when there is none."""
        if self._child is not None:
            self._child.send(message)

    def progressed(self) -> None:
        """Note that the worker did something useful: deaths are counted anew."""
        self._progressed = True

    def kill_worker(self) -> None:
        """Kill the worker of the moment, which hangs; another one is started."""
        if self._child is not None:
            self._child.kill()

    def kill(self) -> None:
        """Kill the worker for good. Nothing is heard of it any more."""
        self._muted = True
        if self._task is not None:
            self._task.cancel()
        if self._child is not None:
            self._child.kill()

    async def stop(self) -> None:
        """Kill the worker and return when it is reaped."""
        self.kill()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._child is not None:
            await self._child.wait()

    async def _keep(self) -> None:
        deaths = 0
        while True:
            self._progressed, self._opened_s = False, None
            reason = await self._live()
            refusal, self._refusal = self._refusal, None
            if refusal is not None and not self._may_pass(refusal):
                self._listener.refused(refusal)
                return
            if refusal is not None:
                reason = f"could not be loaded again: {'; '.join(refusal.lines)}"
            deaths = 1 if self._progressed or self._had_settled() else deaths + 1
            delay_s = self._patience.delay_s(deaths)
            if delay_s is None:
                self._listener.gave_up(reason, deaths=deaths)
                return
            self._listener.died(reason, delay_s=delay_s)
            await asyncio.sleep(delay_s)

    def _may_pass(self, refusal: Refused) -> bool:
        """Say whether a refusal may be of the moment: what was open before now lacks something (memory, mostly)."""
        return self._was_open and refusal.exit_code == UnavailableError.exit_code

    def _had_settled(self) -> bool:
        return self._opened_s is not None and self._clock() - self._opened_s >= self._patience.settled_s

    async def _live(self) -> str:
        """Run one worker from its start to its end, and return why it ended."""
        try:
            self._child = await Child.spawn(self._take, surroundings(self._wanted))
        except OptanedError as error:
            self._refusal = Refused(error.lines, error.exit_code)
            return str(error)
        except OSError as error:
            return f"could not be started: {error}"
        self._listener.spawned(self._child.pid)
        self._child.send(self._wanted)
        reason = await self._child.wait()
        self._child = None
        return reason

    def _take(self, message: FromWorker) -> None:
        if self._muted:
            return
        if isinstance(message, Refused):
            self._refusal = message
        else:
            if isinstance(message, Opened):
                self._was_open, self._opened_s = True, self._clock()
            self._listener.message(message)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the keeper of a worker failed", exc_info=task.exception())
