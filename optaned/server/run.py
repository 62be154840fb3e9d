"""The server's life: bring up, serve, bring down. Reads top to bottom; every part it starts it also ends.

Order matters on the way down: clients get their last event, then the engine dies, then the guard may leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from dataclasses import dataclass
from pathlib import Path

from optaned.config.resolve import ResolvedConfig
from optaned.errors import AccessError
from optaned.hooks.host import PluginHost
from optaned.server.app import build_app
from optaned.server.bind import Listener, adopt, bind
from optaned.server.compose import Parsers, model_specs, server_settings
from optaned.server.guardian import Guardian, guard_command
from optaned.server.http import HttpServer
from optaned.server.stopper import Stopper
from optaned.server.supervisor import ModelSpec, Supervisor
from optaned.server.watch import Watch
from optaned.system.listen import take_listen_sockets
from optaned.system.notify import Notifier
from optaned.system.paths import SYSTEM_WORD, socket_path, word_path_to_obey
from optaned.system.thermal_word import ThermalWord, WordReader

log = logging.getLogger("optaned.server")


@dataclass(frozen=True)
class Brakes:
    """All who may stop the engine and must know which process that is."""

    stopper: Stopper
    guardian: Guardian

    def attach(self, pid: int) -> None:
        self.stopper.attach(pid)
        self.guardian.attach(pid)

    def detach(self) -> None:
        self.stopper.detach()
        self.guardian.detach()


def serve(resolved: ResolvedConfig, host: PluginHost) -> None:
    """Serve until SIGTERM or SIGINT. Raises OptanedError when it cannot begin."""
    word_path = _word_path()
    specs = model_specs(resolved, word_path=word_path, report=lambda stage: log.debug("stage %s", stage))
    listener = _listener(resolved)
    notifier = Notifier()
    command = None if word_path == SYSTEM_WORD else guard_command(resolved.file)
    guardian = Guardian(word_path, command)
    stopper = Stopper(word_path)
    guardian.start()
    stopper.start()
    try:
        asyncio.run(_Server(resolved, host, listener, Brakes(stopper, guardian), notifier).run(specs))
    finally:
        listener.close()
        stopper.close()
        guardian.close()
        notifier.close()


def _word_path() -> Path:
    system = WordReader(SYSTEM_WORD)
    try:
        path = word_path_to_obey(system_guard_lives=isinstance(system.read(), ThermalWord))
    finally:
        system.close()
    if path != SYSTEM_WORD:
        _make_folder(path.parent)
    return path


def _listener(resolved: ResolvedConfig) -> Listener:
    inherited = take_listen_sockets()
    if inherited:
        return adopt(list(inherited.values()))
    server = resolved.config.server
    path = server.socket or socket_path()
    if server.socket is None:
        _make_folder(path.parent)
    return bind(path, mode=int(server.mode, 8), group=server.group)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AccessError(f"{folder}: cannot be made: {reason}; set OPTANED_RUNTIME_DIR or XDG_RUNTIME_DIR") from None


class _Server:
    """One run of the event loop."""

    def __init__(
        self, resolved: ResolvedConfig, host: PluginHost, listener: Listener, brakes: Brakes, notifier: Notifier
    ) -> None:
        self._resolved = resolved
        self._host = host
        self._listener = listener
        self._pause = brakes.stopper
        self._brakes = brakes
        self._notifier = notifier
        self._stop = asyncio.Event()

    async def run(self, specs: dict[str, ModelSpec]) -> None:
        """Bring up, serve until a signal, bring down."""
        self._catch_signals()
        engine = Supervisor(specs, queue=self._resolved.config.server.queue, brake=self._brakes)
        settings = server_settings(self._resolved)
        parsers = Parsers(self._host, engine)
        app = build_app(engine, engine.tokenizer, self._pause, parsers=parsers, models=tuple(specs), settings=settings)
        http = HttpServer(app, self._listener, settings=settings)
        await http.start()
        where = self._listener.path or "an inherited socket"
        log.info("listening on %s", where)
        if self._resolved.config.server.load_on_start:
            await engine.load(self._resolved.default_model)
        watching = asyncio.create_task(Watch(engine, self._pause, self._notifier, self._resolved.default_model).run())
        ended = asyncio.create_task(http.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait((watching, ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        self._notifier.stopping()
        log.info("stopping")
        try:
            for task in (watching, stopped):
                task.cancel()
            await http.stop()
            await engine.close("asked to stop")
        finally:
            # A fault of the HTTP side or of the watch ends the process with its traceback.
            for task in (watching, ended):
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
