"""The server's brake: a thread that applies the guard's duty to the engine with SIGSTOP and SIGCONT.

Knows the thermal word and one process, no model and no request. It alone resumes, and only on a fresh word below
CRITICAL; it also resumes an engine that stopped itself or that the guard stopped. It never resumes on its way out: an
engine that stands still when the server goes is killed by whoever owns it.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from optaned.domain.thermal import Level
from optaned.server.ports import PauseView
from optaned.system.boottime import boottime_s
from optaned.system.pidfd import Pidfd
from optaned.system.thermal_word import Silence, ThermalWord, WordReader

log = logging.getLogger("optaned.stopper")

# Looking at the engine itself costs more than looking at the word.
CHECK_S = 0.1


@dataclass(frozen=True, slots=True)
class Order:
    """What a word means for the engine: the share of time in which it may run, and why. Level None is silence."""

    level: Level | None
    duty: float
    reason: str
    word_age_s: float | None

    @property
    def is_paused(self) -> bool:
        return self.duty <= 0


def order_from(said: ThermalWord | Silence, *, now_s: float) -> Order:
    """Return the order that a word (or its absence) stands for; `now_s` is BOOTTIME."""
    if isinstance(said, Silence):
        return Order(None, 0.0, said.reason, said.age_s)
    duty = 0.0 if said.level >= Level.CRITICAL else min(max(said.duty, 0.0), 1.0)
    return Order(said.level, duty, said.reason, max(0.0, now_s - said.written_s))


def may_run(duty: float, elapsed_s: float, period_s: float) -> bool:
    """Say whether the engine runs at this moment of its period. The still part comes first: it cools without delay."""
    return elapsed_s % period_s >= (1.0 - duty) * period_s


def until_edge_s(duty: float, elapsed_s: float, period_s: float) -> float:
    """Return the time until `may_run` changes its answer; a whole period at most."""
    at_s, still_s = elapsed_s % period_s, (1.0 - duty) * period_s
    return still_s - at_s if at_s < still_s else period_s - at_s


class Stopper:
    """Applies the duty to the attached engine from `start` to `close`. Views may be read from any thread."""

    def __init__(
        self,
        word_path: Path,
        *,
        poll_s: float = 0.02,
        period_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = WordReader(word_path)
        self._poll_s = poll_s
        self._period_s = period_s
        self._clock = clock
        self._engine: Pidfd | None = None
        self._lock = threading.Lock()
        self._closing = False
        self._applied: bool | None = None
        self._check_at_s = clock()
        self._throttled_since_s: float | None = None
        self._view = PauseView(None, 0.0, "no word has been read yet", paused=True, since_s=clock(), word_age_s=None)
        self._thread = threading.Thread(target=self._watch, name="stopper", daemon=True)

    @property
    def view(self) -> PauseView:
        """Return what heat does to the engine, as of the last look. `since_s` is on the monotonic clock."""
        return self._view

    def start(self) -> None:
        self.look()
        self._thread.start()

    def attach(self, pid: int) -> None:
        """Take a living, unreaped child as the engine. Raises ProcessLookupError when it is gone."""
        engine = Pidfd.open(pid)
        with self._lock:
            self._replace(engine)

    def detach(self) -> None:
        """Forget the engine; it is left as it is."""
        with self._lock:
            self._replace(None)

    def _replace(self, engine: Pidfd | None) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine, self._applied = engine, None

    def look(self) -> float:
        """Read the word, stop or resume the engine, and return the seconds until the next look is due."""
        with self._lock:
            order = order_from(self._reader.read(), now_s=boottime_s())
            now_s = self._clock()
            elapsed_s = self._throttled_for_s(order, now_s)
            self._apply(now_s, run=may_run(order.duty, elapsed_s, self._period_s))
        self._show(order, now_s)
        if 0 < order.duty < 1:
            return min(self._poll_s, until_edge_s(order.duty, elapsed_s, self._period_s))
        return self._poll_s

    def _apply(self, now_s: float, *, run: bool) -> None:
        """Act at once on a new answer; see now and then that the old one still holds: others stop the engine, too."""
        if self._engine is None or (run is self._applied and now_s < self._check_at_s):
            return
        stat = self._engine.stat if run is self._applied else None
        # A new answer is sent unseen: a stop that is still pending does not show, and has to be taken back too.
        if run is not self._applied or (stat is not None and stat.is_stopped == run):
            self._engine.send(signal.SIGCONT if run else signal.SIGSTOP)
        self._applied, self._check_at_s = run, now_s + CHECK_S

    def _throttled_for_s(self, order: Order, now_s: float) -> float:
        if not 0 < order.duty < 1:
            self._throttled_since_s = None
        elif self._throttled_since_s is None:
            self._throttled_since_s = now_s
        return 0.0 if self._throttled_since_s is None else now_s - self._throttled_since_s

    def _show(self, order: Order, now_s: float) -> None:
        before = self._view
        changed = (order.level, order.is_paused) != (before.level, before.paused)
        since_s = now_s if changed else before.since_s
        self._view = PauseView(
            order.level, order.duty, order.reason, paused=order.is_paused, since_s=since_s, word_age_s=order.word_age_s
        )
        if order.is_paused and not before.paused:
            log.warning("the engine stands still: %s", order.reason)
        elif before.paused and not order.is_paused:
            log.info("the engine may run: %s", order.reason)

    def _watch(self) -> None:
        wait_s = self._poll_s
        while not self._closing:
            time.sleep(wait_s)
            try:
                wait_s = self.look()
            except OSError:
                # A brake that lets go of the wheel is worse than a noisy one; the engine's own brake works meanwhile.
                log.exception("cannot apply the duty; trying again")
                wait_s = self._poll_s

    def close(self) -> None:
        """Stop looking. The engine stays as it is."""
        self._closing = True
        if self._thread.is_alive():
            self._thread.join()
        self.detach()
        self._reader.close()
