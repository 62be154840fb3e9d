"""The guard's loop: read, decide, speak, act, sleep. It decides nothing itself and knows no driver by kind.

The order within a tick is that of urgency: the word first, then the fans, then the log. On every way out the word is
ended and the fans are left at full.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from optaned.config.lookup import ResolvedDriver
from optaned.domain.thermal import Level, Proposal, Snapshot
from optaned.guard.acting import Coolers
from optaned.guard.engine_watch import EngineWatch
from optaned.guard.latch import Latch
from optaned.guard.plan import GuardPlan
from optaned.guard.sensing import Sensors
from optaned.hooks.drivers import Env
from optaned.system.boottime import boottime_s
from optaned.system.notify import Notifier
from optaned.system.paths import engine_socket_path
from optaned.system.thermal_word import ThermalWord, WordWriter
from optaned.thermal.governor import GovernorState, step
from optaned.thermal.votes import apply_votes, hold

log = logging.getLogger("optaned.guard")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Guard:
    """One guard, from `run` until `stop`. Everything it needs is in its plan."""

    def __init__(self, plan: GuardPlan, notifier: Notifier, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._notifier = notifier
        self._clock = clock
        self._state = GovernorState()
        self._latch = Latch(plan.state_dir)
        self._last: Proposal | None = None
        self._stopping = False

    def stop(self) -> None:
        """Have `run` end after what it is doing; callable from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Guard until stopped. Raises BusyError when another guard owns the word, UnavailableError without one."""
        plan = self._plan
        with ExitStack() as stack:
            word = WordWriter(plan.word_path)
            stack.callback(word.close)
            stack.callback(self._end, word)
            selector = stack.enter_context(selectors.DefaultSelector())
            watch = EngineWatch(
                engine_socket_path(plan.word_path),
                selector,
                service_uid=plan.service_uid,
                act_after_s=plan.act_after_s,
            )
            stack.callback(watch.close)
            coolers = Coolers(plan.coolers, self._env)
            stack.callback(coolers.release)
            sensors = Sensors(plan.sensors, self._env, period_s=plan.policy.tick_s)
            stack.callback(sensors.close)
            stack.enter_context(self._signals(selector))
            while not self._stopping:
                next_s = self._tick(sensors, word, watch, coolers)
                self._wait(selector, watch, next_s)
            self._notifier.stopping()

    def _env(self, source: ResolvedDriver) -> Env:
        name = source.name
        return Env(clock=self._clock, state_dir=self._plan.state_dir, log=logging.getLogger(f"optaned.driver.{name}"))

    # ---- a tick ------------------------------------------------------------------------------------------------------

    def _tick(self, sensors: Sensors, word: WordWriter, watch: EngineWatch, coolers: Coolers) -> float:
        """Return when the next tick is due."""
        began_s = self._clock()
        readings = sensors.read(began_s)
        snapshot = Snapshot(self._clock(), readings)
        self._state, decision = step(self._state, snapshot, self._plan.policy)
        proposal = apply_votes(decision.proposal, self._plan.votes(snapshot, decision.proposal))
        proposal = self._latched(proposal)
        self._speak(word, proposal)
        watch.obey(proposal.level, now_s=self._clock())
        coolers.drive(proposal.cooling)
        self._tell(proposal)
        self._notifier.alive()
        return began_s + decision.next_sleep_s

    def _latched(self, proposal: Proposal) -> Proposal:
        if proposal.level is Level.TRIP and self._latch.reason is None:
            self._latch.set(proposal.reasons[0])
        reason = self._latch.reason
        return proposal if reason is None else hold(proposal, f"tripped: {reason}; remove {self._latch.path} to go on")

    def _speak(self, word: WordWriter, proposal: Proposal) -> None:
        now_s = boottime_s()
        said = ThermalWord(
            level=proposal.level,
            duty=proposal.duty,
            reason=proposal.reasons[0] if proposal.reasons else "",
            written_s=now_s,
            valid_until_s=now_s + self._plan.word_valid_s,
            policy_digest=self._plan.policy.digest,
            writer_pid=os.getpid(),
        )
        word.write(said)

    def _tell(self, proposal: Proposal) -> None:
        """Log and show what has changed: on the edge, once."""
        before, self._last = self._last, proposal
        why = "; ".join(proposal.reasons)
        if before is None:
            log.info("guarding: %s: %s", proposal.level.name, why)
            self._notifier.ready(_status(proposal))
        elif proposal.level is not before.level:
            severity = logging.WARNING if proposal.level >= Level.HOT else logging.INFO
            log.log(severity, "%s -> %s: %s", before.level.name, proposal.level.name, why)
            self._notifier.status(_status(proposal))

    def _end(self, word: WordWriter) -> None:
        """Say that this guard guards no more: the word is silence from now on."""
        now_s = boottime_s()
        word.write(ThermalWord(Level.CRITICAL, 0.0, "the guard has ended", now_s, now_s, writer_pid=os.getpid()))

    # ---- between ticks -----------------------------------------------------------------------------------------------

    def _wait(self, selector: selectors.BaseSelector, watch: EngineWatch, next_s: float) -> None:
        while not self._stopping and (now_s := self._clock()) < next_s:
            watch.act(now_s=now_s)
            due_s = next_s if watch.act_at_s is None else min(next_s, watch.act_at_s)
            for key, _ in selector.select(max(0.0, due_s - now_s)):
                key.data()

    @contextmanager
    def _signals(self, selector: selectors.BaseSelector) -> Iterator[None]:
        """Have SIGTERM and SIGINT end the loop at once, in the middle of a sleep too."""
        woken, waker = socket.socketpair()
        woken.settimeout(0)
        waker.settimeout(0)

        def stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signature is Python's
            self.stop()

        old_wakeup = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        old = {signum: signal.signal(signum, stop) for signum in _SIGNALS}
        selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(64))
        try:
            yield
        finally:
            for signum, handler in old.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(old_wakeup)
            selector.unregister(woken)
            woken.close()
            waker.close()


def _status(proposal: Proposal) -> str:
    parked = "parked: " if proposal.level >= Level.CRITICAL else ""
    return f"{parked}{proposal.level.name}: {'; '.join(proposal.reasons)}"
