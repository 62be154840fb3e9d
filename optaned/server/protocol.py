"""One HTTP/1.1 connection: who is at the other end, how long it may take, and faults in JSON. Knows no route."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from optaned.server.faults import ApiError
from optaned.server.replying import json_response
from optaned.server.settings import ServerSettings
from optaned.system.peers import Peer, peer_of

_FULL = ApiError(
    503,
    "too many connections are open; close some, or try again",
    code="too_many_connections",
    headers={"connection": "close", "retry-after": "5"},
)


class UnixProtocol(H11Protocol):
    """uvicorn's protocol with the peer's credentials in the scope's state, a header deadline and a connection cap."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: ServerSettings,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings = settings
        # Its line holds the query, and the envelope has written one already.
        self.access_log = False
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a client in; beyond the cap it gets one short answer, far beyond it none."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": _peer(transport)}
        # Our own place counts too. The margin keeps room to say so, and descriptors for the engine's pipes.
        excess = len(self.connections) - self._settings.max_connections
        if excess > 64:
            transport.abort()
        elif excess > 0:
            self.app = _refuse
        self._watch_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_header()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_header()

    def _watch_header(self) -> None:
        """Run the deadline while a header is expected and not complete; an idle kept connection has one of its own."""
        fresh = self.cycle is None
        begun = bool(self.conn.trailing_data[0])
        if self.conn.their_state is not h11.IDLE or not (fresh or begun):
            self._forget_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self._settings.header_timeout_s, self._header_late)

    def _forget_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_late(self) -> None:
        text = f"no complete header arrived within {self._settings.header_timeout_s:g} s"
        self._refuse_raw(ApiError(408, text, code="request_timeout"))

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in JSON. uvicorn's `msg` is always the same; h11's error, in hand, says what it is."""
        fault = sys.exception()
        why = str(fault) if isinstance(fault, h11.RemoteProtocolError) else msg.rstrip(".")
        why = why[:1].lower() + why[1:200]
        self._refuse_raw(ApiError(400, f"this is no HTTP request: {why}", code="invalid_http"))

    def _refuse_raw(self, fault: ApiError) -> None:
        """Answer outside of any request, if nothing of another answer is on its way, and close."""
        if not self.transport.is_closing() and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = json_response(fault.body)
            headers = [*response.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=fault.status, headers=headers),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _peer(transport: asyncio.BaseTransport) -> Peer | None:
    """Return the peer's credentials; None where the socket has none (TCP)."""
    try:
        return peer_of(transport.get_extra_info("socket"))
    except OSError:
        return None


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    await json_response(_FULL.body, _FULL.status, _FULL.headers)(scope, receive, send)
