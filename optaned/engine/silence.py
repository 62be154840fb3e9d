"""The engine's own brake: a thread that stops its process when the guard is silent or says CRITICAL. It never resumes.

Knows the thermal word and this process, no model and no server. It works when the server is stopped, hung or busy: one
of three stoppers that do not depend on each other. Only the server resumes.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from optaned.domain.thermal import Level
from optaned.system.thermal_word import Silence, ThermalWord, WordReader

log = logging.getLogger("optaned.engine")


def stop_reason(said: ThermalWord | Silence) -> str | None:
    """Return why an engine has to stand still, None while it may run."""
    if isinstance(said, Silence):
        return said.reason
    return f"{said.level.name}: {said.reason}" if said.level >= Level.CRITICAL else None


def stop_this_process() -> None:
    """Stand still until someone sends SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


class SilenceStopper:
    """Watches the word from `start` to `close`. At 25 looks a second it costs about 0.1 % of a core."""

    def __init__(self, word_path: Path, *, poll_s: float = 0.04, stop: Callable[[], None] = stop_this_process) -> None:
        self._reader = WordReader(word_path)
        self._poll_s = poll_s
        self._stop = stop
        self._closing = False
        self._thread = threading.Thread(target=self._watch, name="silence-stopper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Look once, and stand still if that is called for."""
        reason = stop_reason(self._reader.read())
        if reason is None:
            return
        began_s = time.monotonic()
        self._stop()
        # Said afterwards: a log that blocks must not keep hot memory busy.
        log.warning("stood still for %.1f s: %s", time.monotonic() - began_s, reason)

    def _watch(self) -> None:
        # Sleeping costs a third less than waiting for an event.
        while not self._closing:
            self.look()
            time.sleep(self._poll_s)

    def close(self) -> None:
        self._closing = True
        if self._thread.is_alive():
            self._thread.join()
        self._reader.close()
