"""POST /trace: the router's choices as they are made, one JSON object a line, until the client leaves.

Layers and expert numbers only: no text and no tokens, though the choices of a known model say something of a text. Hence
for administrators alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from optaned.engine.messages import Choices
from optaned.server.control import require_admin
from optaned.server.faults import api_error
from optaned.server.ports import EngineView, Failure, TracePort
from optaned.server.service import Service

_HEADERS = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-cache")]


async def trace(request: Request, service: Service) -> Response:
    """POST /trace: stream the choices of all answers from now on. Raises ApiError 403, Failure without a model."""
    peer = require_admin(request, service)
    service.log.info("trace, asked by uid=%d (%s) pid=%d", peer.uid, peer.user, peer.pid)
    service.engine.check_ready()
    return _Stream(service)


def header_line(view: EngineView) -> dict[str, Any]:
    """Return the first line: which model the choices are of, and its shape."""
    index = view.placed.index if view.placed else None
    return {
        "model": view.model,
        "digest": index.digest if index else None,
        "layers": list(index.expert_layers) if index else None,
        "experts": index.expert_count if index else None,
        "experts_used": index.expert_used_count if index else None,
    }


def token_lines(choices: Choices) -> Iterator[bytes]:
    """Yield one line a token: `{"choices": [[layer, [experts]], …]}`."""
    token: list[tuple[int, tuple[int, ...]]] = []
    for layer, experts in choices.choices:
        if token and layer <= token[-1][0]:
            yield _line({"choices": token})
            token = []
        token.append((layer, experts))
    if token:
        yield _line({"choices": token})


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"


class _Stream(Response):
    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  it is ASGI's
        """Stream until the client leaves; what ends the engine is the last line."""
        found = self._service.engine.trace()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._service.exchanges.run(receive, self._lines(found, send))
        except Failure as failure:
            await send({"type": "http.response.body", "body": _line(api_error(failure).body), "more_body": False})
        finally:
            await found.aclose()

    async def _lines(self, found: TracePort, send: Send) -> None:
        await _put(send, _line(header_line(self._service.engine.view)))
        lost = 0
        while True:
            try:
                choices = await asyncio.wait_for(found.__anext__(), self._service.settings.ping_s)
            except TimeoutError:
                # An empty line, as others send pings: a client behind a dead proxy is noticed.
                await _put(send, b"\n")
                continue
            await _put(send, b"".join(token_lines(choices)))
            if found.lost > lost:
                lost = found.lost
                await _put(send, _line({"lost": lost}))


async def _put(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
