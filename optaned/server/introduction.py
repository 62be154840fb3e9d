"""Introduce the engine to the guard, so that the guard can stop it by itself. Knows the guard's socket, not its word.

Once for each new guard and each new engine; a guard that does not answer is asked again.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from optaned.errors import AccessError
from optaned.system.handover import hand_over
from optaned.system.pidfd import Pidfd

log = logging.getLogger("optaned.guardian")

ASK_AGAIN_S = 2.0


class Introduction:
    """The engine that is to be introduced. `attach` and `detach` never wait, whatever the guard does."""

    def __init__(self, socket_path: Path) -> None:
        self._socket_path = socket_path
        self._engine: Pidfd | None = None
        self._told: int | None = None
        self._ask_at_s = 0.0
        self._lock = threading.Lock()

    def attach(self, pid: int) -> None:
        """Raises ProcessLookupError when there is no such process."""
        engine = Pidfd.open(pid)
        with self._lock:
            self._replace(engine)

    def detach(self) -> None:
        with self._lock:
            self._replace(None)

    def _replace(self, engine: Pidfd | None) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine, self._told, self._ask_at_s = engine, None, 0.0

    def make(self, guard_pid: int, now_s: float) -> None:
        """Hand the engine to this guard unless that has been done; waits for its answer for a second at most."""
        with self._lock:
            engine = self._engine
            if engine is None or self._told == guard_pid or now_s < self._ask_at_s:
                return
            mine = engine.duplicate()
        # Without the lock: a guard that hangs must not delay whoever attaches a new engine.
        is_told = self._hand_over(mine)
        mine.close()
        with self._lock:
            if self._engine is engine:
                self._told, self._ask_at_s = guard_pid if is_told else None, now_s + ASK_AGAIN_S

    def _hand_over(self, engine: Pidfd) -> bool:
        try:
            hand_over(self._socket_path, engine)
        except (OSError, AccessError) as error:
            log.warning("the guard does not watch the engine yet: %s", error)
            return False
        return True
