"""Around every request: an id, one line in the log, and a JSON answer to every fault. Pure ASGI.

Logs method, path, status, milliseconds and the peer; never a body, a query or an exception's text.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from optaned.server.exchange import ClientLeft
from optaned.server.faults import ApiError, api_error
from optaned.server.ports import Failure
from optaned.server.replying import json_response, log_bug
from optaned.system.peers import Peer

_SANE_ID = re.compile(rb"[\w.:-]{1,64}")
# What a proxy calls a client that closed its connection first; it appears in the log alone.
_CLIENT_LEFT = 499


class Envelope:
    """Wraps the routes; nothing that is raised inside leaves it."""

    def __init__(self, app: ASGIApp, log: logging.Logger) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        # The router raises HTTPException, instead of answering in plain text, where an application is in charge.
        scope["app"] = self
        started_s = time.perf_counter()
        header = (b"x-request-id", _request_id(scope))
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], header]}
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except ClientLeft:
            status = _CLIENT_LEFT
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  the last resort: told to the client
            fault = self._fault(error)
            if not status:
                response = json_response(fault.body, fault.status, fault.headers)
                await response(scope, receive, send_named)
        finally:
            self._note(scope, status, time.perf_counter() - started_s)

    def _fault(self, error: BaseException) -> ApiError:
        if isinstance(error, asyncio.CancelledError):
            # Only a stopping server cancels, when its patience with a half request or a slow reader is over.
            return api_error(Failure("shutting_down", "the server is stopping"))
        if isinstance(error, ApiError):
            return error
        if isinstance(error, Failure):
            return api_error(error)
        if isinstance(error, HTTPException):
            text = {404: "there is no such route", 405: "this route does not know that method"}
            return ApiError(
                error.status_code,
                text.get(error.status_code, error.detail),
                code={404: "not_found", 405: "method_not_allowed"}.get(error.status_code),
                headers=dict(error.headers or {}),
            )
        log_bug(self._log, error)
        return ApiError(500, "an internal error", code="internal_error", headers={"x-should-retry": "false"})

    def _note(self, scope: Scope, status: int, took_s: float) -> None:
        peer: Peer | None = scope.get("state", {}).get("peer")
        # Probes ask every few seconds, and a /ready of 503 is no news.
        level = logging.DEBUG if scope["method"] in ("GET", "HEAD") else logging.INFO
        path = scope.get("raw_path", b"").decode("ascii", "replace")[:200]
        uid = "?" if peer is None else peer.uid
        self._log.log(level, "%s %s %d %.1f ms uid=%s", scope["method"], path, status, took_s * 1000, uid)


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return bytes(value)
    return b"req-" + uuid.uuid4().hex.encode()
