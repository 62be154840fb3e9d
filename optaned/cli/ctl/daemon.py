"""The daemon as the verbs see it: JSON in, JSON out, its errors as ours. Knows routes' manners, not their meaning."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from optaned.cli.ctl.address import Address, explain
from optaned.cli.ctl.events import EventParser
from optaned.cli.ctl.wire import Exchange
from optaned.errors import AccessError, BusyError, OptanedError, UnavailableError

ANSWER_WITHIN_S = 10.0
TICK_S = 0.25


class ApiError(OptanedError):
    """The daemon refused a request or broke off an answer; the line is its own."""


@dataclass(frozen=True)
class Reply:
    """Status, parsed JSON body and the pid of the process that listens."""

    status: int
    body: Any
    pid: int


class Daemon:
    """Requests to one address. Raises UnavailableError (not there), AccessError (may not), BusyError, ApiError."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        """Return the reply whatever its status, for routes whose 503 is an answer too."""
        status, raw, pid = self._fetch(method, path, body)
        return Reply(status, _decode(raw), pid)

    def get(self, path: str) -> Any:
        """Return the JSON of a GET that must succeed."""
        return _accept(self.ask("GET", path))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the JSON of a POST that must succeed."""
        return _accept(self.ask("POST", path, body))

    def figures(self) -> dict[str, float]:
        """Return the unlabelled figures of `/metrics`."""
        _, raw, _ = self._fetch("GET", "/metrics", None)
        pairs = (line.split() for line in raw.decode("utf-8", "replace").splitlines() if not line.startswith("#"))
        return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2 and "{" not in pair[0]}

    def stream(
        self, path: str, body: Mapping[str, Any], *, tick_s: float = TICK_S
    ) -> Generator[dict[str, Any] | None, None, None]:
        """Yield the JSON of each server-sent event; None while nothing comes. Closing the iterator cancels the answer.

        Raises ApiError for an error event and for a stream that ends without `[DONE]`.
        """
        parser = EventParser()
        with Exchange(self.address, "POST", path, _encode(body)) as exchange:
            for _ in exchange.head(tick_s=tick_s):
                yield None
            if exchange.status != 200:
                raw = b"".join(exchange.chunks(tick_s=tick_s))
                _accept(Reply(exchange.status, _decode(raw), 0))
            for chunk in exchange.chunks(tick_s=tick_s):
                if not chunk:
                    yield None
                for data in parser.feed(chunk):
                    if data == "[DONE]":
                        return
                    yield _event(data)
        raise ApiError("the answer ended too early: the daemon closed the stream without a last event")

    def lines(self, path: str, body: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """Yield the lines of a POST whose reply is JSON, an object a line, as they come. Closing the iterator ends it."""
        pending = b""
        with Exchange(self.address, "POST", path, _encode(body)) as exchange:
            for _ in exchange.head(tick_s=TICK_S):
                pass
            if exchange.status != 200:
                raw = b"".join(exchange.chunks(tick_s=TICK_S))
                _accept(Reply(exchange.status, _decode(raw), 0))
            for chunk in exchange.chunks(tick_s=TICK_S):
                *whole, pending = (pending + chunk).split(b"\n")
                yield from (line for line in whole if line)

    def _fetch(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes, int]:
        deadline = time.monotonic() + ANSWER_WITHIN_S
        raw = bytearray()
        with Exchange(self.address, method, path, _encode(body)) as exchange:
            for _ in exchange.head(tick_s=TICK_S):
                self._check(deadline)
            for chunk in exchange.chunks(tick_s=TICK_S):
                self._check(deadline)
                raw += chunk
            return exchange.status, bytes(raw), exchange.peer_pid

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise explain(self.address, TimeoutError())


def error_of(status: int, body: Any) -> OptanedError:
    """Return the error that a reply stands for, its message in one line."""
    fault = body.get("error") if isinstance(body, dict) else None
    message = fault.get("message") if isinstance(fault, dict) else fault
    line = " ".join(str(message or f"the daemon answered HTTP {status}").split())
    if status in {401, 403}:
        return AccessError(line)
    code = fault.get("code") if isinstance(fault, dict) else None
    if status in {429, 503} and code != "model_failed":
        return BusyError(line)
    return ApiError(line)


def _accept(reply: Reply) -> Any:
    if reply.status >= 400:
        raise error_of(reply.status, reply.body)
    return reply.body


def _event(data: str) -> dict[str, Any]:
    event = _decode(data.encode())
    if not isinstance(event, dict):
        raise ApiError(f"the daemon sent an event that is no JSON object: {data[:80]!r}")
    if event.get("error"):
        raise error_of(500, event)
    return event


def _encode(body: Mapping[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _decode(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw.strip() else None
    except ValueError as error:
        raise UnavailableError(f"what answers is not the daemon: {raw[:80]!r} is no JSON") from error
