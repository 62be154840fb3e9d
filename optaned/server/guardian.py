"""Keep a guard alive for a server that was started by hand: start one where no word is fresh, replace one that fails.

Knows the word and a command line, no sensor. It also hands the engine to whichever guard speaks, so that the guard can
stop it by itself. A service has no command to start one with: its guard is systemd's.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from optaned.server.guard_charge import Charge, Step, after_death, next_step
from optaned.server.introduction import Introduction
from optaned.system.paths import engine_socket_path
from optaned.system.thermal_word import Silence, ThermalWord, WordReader

log = logging.getLogger("optaned.guardian")

PATIENCE_S = 1.0


def guard_command(config_path: Path) -> tuple[str, ...]:
    """Return the command line that starts a guard on this configuration."""
    return (sys.executable, "-m", "optaned.cli.optaned", "guard", "--config", str(config_path))


def ignore_failure(reason: str) -> None:
    """Run no fail-safe: without one, it is silence that stops the engine."""


class Guardian:
    """Supervises one guard from `start` to `close`, in a thread that lives as long as the server.

    `command` starts a guard, which gets `--word PATH --parent PID` and goes with this process; None starts none.
    `fail_safe(reason)` is called each time that a guard of ours has failed, before the next one starts.
    """

    def __init__(
        self,
        word_path: Path,
        command: Sequence[str] | None,
        *,
        stale_after_s: float = 2.0,
        poll_s: float = 0.1,
        fail_safe: Callable[[str], None] = ignore_failure,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._word_path = word_path
        self._reader = WordReader(word_path)
        own = ("--word", str(word_path), "--parent", str(os.getpid()))
        self._command = None if command is None else (*command, *own)
        self._stale_after_s = stale_after_s
        self._poll_s = poll_s
        self._fail_safe = fail_safe
        self._clock = clock
        self._charge = Charge()
        self._child: subprocess.Popen[bytes] | None = None
        self._introduction = Introduction(engine_socket_path(word_path))
        self._closing = threading.Event()
        # The guard gets a signal when the thread that started it ends: with `close`, or with the process.
        self._thread = threading.Thread(target=self._watch, name="guardian", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def guard_pid(self) -> int | None:
        """Return the pid of the guard that we run, None while there is none of ours."""
        child = self._child
        return None if child is None or child.returncode is not None else child.pid

    @property
    def deaths(self) -> int:
        """Return how many guards of ours have ended."""
        return self._charge.deaths

    def attach(self, pid: int) -> None:
        """Take a living, unreaped child as the engine that the guard shall watch. Raises ProcessLookupError."""
        self._introduction.attach(pid)

    def detach(self) -> None:
        self._introduction.detach()

    def _watch(self) -> None:
        while not self._closing.wait(self._poll_s):
            try:
                self.look()
            except OSError:
                # Should this thread end, its guard would go with it.
                log.exception("cannot look after the guard; trying again")
        self._end()

    def look(self) -> Step:
        """Look once: start, kill or leave the guard, and return which."""
        said = self._reader.read()
        now_s = self._clock()
        self._notice(said, now_s)
        is_fresh = isinstance(said, ThermalWord)
        is_alive = self.guard_pid is not None
        step = next_step(
            self._charge, is_fresh=is_fresh, is_alive=is_alive, now_s=now_s, stale_after_s=self._stale_after_s
        )
        if step is Step.START and self._command is not None:
            self._spawn(self._command, now_s)
        elif step is Step.KILL:
            log.error("the guard (pid %s) lives but %s: killing it", self.guard_pid, said.reason)
            self._kill()
        elif isinstance(said, ThermalWord):
            self._introduction.make(said.writer_pid, now_s)
        return step

    def _notice(self, said: ThermalWord | Silence, now_s: float) -> None:
        child = self._child
        if child is not None and child.poll() is not None:
            self._bury(child, now_s)
        if isinstance(said, Silence):
            since_s = now_s if self._charge.silent_since_s is None else self._charge.silent_since_s
            self._charge = replace(self._charge, silent_since_s=since_s)
        else:
            spoke = self._charge.spoke or said.writer_pid == self.guard_pid
            self._charge = replace(self._charge, silent_since_s=None, spoke=spoke)

    def _bury(self, child: subprocess.Popen[bytes], now_s: float) -> None:
        self._child = None
        self._charge = after_death(self._charge, now_s=now_s)
        reason = f"the guard (pid {child.pid}) ended with status {child.returncode}"
        log.error("%s; the engine stands still until there is a new one", reason)
        self._fail_safe(reason)

    def _spawn(self, command: Sequence[str], now_s: float) -> None:
        # Its own session: Ctrl-C goes to the server, and the guard outlives the engine.
        environ = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        try:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=environ)
        except OSError as error:
            log.critical("the guard cannot be started: %s: %s", command[0], error.strerror)
            self._charge = after_death(self._charge, now_s=now_s)
            return
        log.info("started a guard of our own (pid %d)", self._child.pid)
        self._charge = replace(self._charge, started_s=now_s, spoke=False, silent_since_s=None)

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def _end(self) -> None:
        """Ask our guard to end, so that it leaves the fans at full; insist when it does not."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            log.warning("the guard (pid %d) does not end: killing it", self._child.pid)
            self._kill()

    def close(self) -> None:
        """End our guard; call it when the engine is dead."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self.detach()
        self._reader.close()
