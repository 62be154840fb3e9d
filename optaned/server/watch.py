"""Looks at heat and at the load ten times a second: parks the engine on a trip, and tells systemd how things stand."""

from __future__ import annotations

import asyncio

from optaned.domain.thermal import Level
from optaned.server.ports import EngineState, EngineView, PausePort, PauseView
from optaned.server.supervisor import Supervisor
from optaned.system.notify import Notifier

_EVERY_S = 0.1
# Asked for again at each look while loading, so that a load of any length is never taken for a hung start.
_EXTEND_S = 30.0


def status_line(engine: EngineView, pause: PauseView) -> str:
    """Return one line for `systemctl status`."""
    if pause.level is Level.TRIP:
        return f"parked: {pause.reason}"
    if pause.paused and engine.state in (EngineState.READY, EngineState.LOADING):
        return f"paused: {pause.reason}"
    match engine.state:
        case EngineState.LOADING:
            return f"loading {engine.model}: {engine.fraction:.0%}"
        case EngineState.READY:
            return f"serving {engine.model}: {engine.active} active, {engine.waiting} waiting"
        case EngineState.UNLOADED:
            return "no model is loaded"
    return f"{engine.state}: {engine.detail}" if engine.detail else str(engine.state)


class Watch:
    """Runs as a task of the server's loop until it is cancelled."""

    def __init__(self, engine: Supervisor, pause: PausePort, notifier: Notifier, default_model: str) -> None:
        self._engine = engine
        self._pause = pause
        self._notifier = notifier
        self._model = default_model
        self._parked = False
        self._told_ready = False
        self._status = ""

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.look()
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> None:
        """Look once."""
        pause = self._pause.view
        tripped = pause.level is Level.TRIP
        if tripped and not self._parked:
            self._parked = True
            self._model = self._engine.view.model or self._model
            await self._engine.park(pause.reason)
        elif self._parked and not tripped and pause.level is not None:
            self._parked = False
            self._engine.unpark()
            await self._engine.load(self._model)
        self._tell(self._engine.view, pause)

    def _tell(self, engine: EngineView, pause: PauseView) -> None:
        if not self._notifier.is_connected:
            return
        status = status_line(engine, pause)
        settled = engine.state not in (EngineState.LOADING, EngineState.RESTARTING)
        if not self._told_ready and settled:
            self._told_ready = True
            self._notifier.ready(status)
        elif status != self._status:
            self._notifier.status(status)
        if not settled:
            self._notifier.extend_timeout(_EXTEND_S)
        self._notifier.alive()
        self._status = status
