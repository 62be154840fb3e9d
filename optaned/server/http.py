"""The HTTP server on our sockets, inside a loop that somebody else runs: started, stopped, and nothing left behind.

It installs no signal handlers: who stops it, and when, is decided above.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn

from optaned.server.app import App
from optaned.server.bind import Listener
from optaned.server.protocol import UnixProtocol
from optaned.server.settings import ServerSettings

_HEADER_MAX_BYTES = 64 << 10


class HttpServer:
    """Serves an application on a listener. `start` returns when clients are accepted, `stop` when all are gone."""

    def __init__(self, app: App, listener: Listener, *, settings: ServerSettings | None = None) -> None:
        self._app = app
        self._listener = listener
        settings = settings or ServerSettings()
        protocol = functools.partial(UnixProtocol, settings=settings)
        config = uvicorn.Config(
            cast("Any", app),
            http=cast("type[asyncio.Protocol]", protocol),
            ws="none",
            lifespan="off",
            interface="asgi3",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=settings.stop_s,
            h11_max_incomplete_event_size=_HEADER_MAX_BYTES,
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept clients from now on."""
        self._serving = asyncio.create_task(self._server.serve(sockets=self._listener.sockets), name="http")
        accepting = asyncio.create_task(self._server.accepting.wait())
        await asyncio.wait((self._serving, accepting), return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            accepting.cancel()
            self._serving.result()

    async def wait(self) -> None:
        """Return when the server has ended, by `stop` or by a fault (which is raised)."""
        assert self._serving is not None
        await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """Take no more clients, give every open stream its last event, and return soon after the settings' `stop_s`."""
        if self._serving is None:
            self._listener.close()
            return
        self._app.end_streams()
        self._server.should_exit = True
        try:
            await self._serving
        finally:
            # A client that does not read its answer keeps its connection; it has had its time.
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            self._listener.close()
            self._serving = None


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
