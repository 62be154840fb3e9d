"""Generate and reply: as one JSON object, or as a stream. The same for chat and plain completions.

Knows how an answer runs and ends; what a choice looks like is its writer's business.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from optaned.engine.messages import Finished, Generate, Piece, Prefilled, Started
from optaned.server.answers import Totals, answers
from optaned.server.exchange import ClientLeft
from optaned.server.faults import ApiError, api_error
from optaned.server.ports import Failure
from optaned.server.service import Service
from optaned.server.sse import EventStream
from optaned.server.wire import DONE, event, timings_json, usage_json


class Whole(Protocol):
    """Collects one choice of a whole answer."""

    reasoning_tokens: int

    def piece(self, piece: Piece) -> None: ...

    def finish(self, finished: Finished) -> dict[str, Any]: ...


class Chunks(Protocol):
    """Cuts one choice of a streamed answer into events."""

    reasoning_tokens: int

    def piece(self, piece: Piece) -> bytes: ...

    def finish(self, finished: Finished) -> bytes: ...


@dataclass(frozen=True)
class Reply:
    """What to generate and how to speak of it. `base` has id, created, model and system_fingerprint.

    `requests` are the choices of each prompt, prompt after prompt; `choices` says how many each prompt has.
    """

    requests: tuple[Generate, ...]
    choices: int
    base: dict[str, Any]
    kind: str
    counts_usage: bool = False


def json_response(payload: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response; records and enums are encoded as they are."""
    return Response(msgspec.json.encode(payload), status, headers, "application/json")


async def whole(service: Service, reply: Reply, writers: Sequence[Whole], receive: Receive) -> Response:
    """Return the complete answer. Raises Failure, and ClientLeft when nobody waits for it any more."""
    return json_response(await service.exchanges.run(receive, _collect(service, reply, writers)))


async def _collect(service: Service, reply: Reply, writers: Sequence[Whole]) -> dict[str, Any]:
    totals = Totals(reply.choices)
    choices: dict[int, dict[str, Any]] = {}
    async with answers(service.engine, reply.requests) as events:
        async for number, happened in events:
            if isinstance(happened, Piece):
                writers[number].piece(happened)
            elif isinstance(happened, Finished):
                totals.add(number, happened)
                choices[number] = writers[number].finish(happened)
    reasoning = sum(writer.reasoning_tokens for writer in writers)
    return {
        **reply.base,
        "object": reply.kind,
        "choices": [choices[number] for number in sorted(choices)],
        "usage": usage_json(totals.usage, reasoning),
        "timings": timings_json(totals.usage, totals.timings),
    }


class Streamed(Response):
    """A streamed answer, as a response that runs the generation itself."""

    def __init__(self, service: Service, reply: Reply, writers: Sequence[Chunks]) -> None:
        super().__init__()
        self._service = service
        self._reply = reply
        self._writers = writers
        self._phase = "queued"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  it is ASGI's
        """Stream until done. Before the headers are out a Failure is raised; after that it is the last event."""
        stream = EventStream(send, ping_s=self._service.settings.ping_s, quiet=self._quiet)
        try:
            await self._service.exchanges.run(receive, self._generate(stream))
        except ClientLeft:
            raise
        except Exception as error:  # logged below: a stream never ends in silence
            if not stream.is_open:
                raise
            await stream.finish(_last_event(error, self._service.log))
        finally:
            stream.stop()

    async def _generate(self, stream: EventStream) -> None:
        totals = Totals(self._reply.choices)
        async with answers(self._service.engine, self._reply.requests) as events:
            await stream.open()
            async for number, happened in events:
                if isinstance(happened, Piece):
                    data = self._writers[number].piece(happened)
                    if data:
                        await stream.send(data)
                elif isinstance(happened, Finished):
                    totals.add(number, happened)
                    await stream.send(self._writers[number].finish(happened))
                else:
                    self._phase = _phase(happened)
        await stream.finish(self._closing(totals) + DONE)

    def _closing(self, totals: Totals) -> bytes:
        if not self._reply.counts_usage:
            return b""
        reasoning = sum(writer.reasoning_tokens for writer in self._writers)
        kind = self._reply.kind + (".chunk" if self._reply.kind.startswith("chat") else "")
        return event({**self._reply.base, "object": kind, "choices": [], "usage": usage_json(totals.usage, reasoning)})

    def _quiet(self) -> str:
        pause = self._service.pause.view
        return f"paused, {pause.reason}" if pause.paused else f"ping {self._phase}"


def _phase(happened: Started | Prefilled) -> str:
    if isinstance(happened, Started):
        return "prefill"
    return f"prefill {happened.done}/{happened.total}" if happened.done < happened.total else "decode"


def _last_event(error: Exception, log: logging.Logger) -> bytes:
    if isinstance(error, Failure):
        return api_error(error).event
    log_bug(log, error)
    return ApiError(500, "an internal error ended the answer", code="internal_error").event


def log_bug(log: logging.Logger, error: BaseException) -> None:
    """Log where a bug is, without the exception's text: it may quote a prompt."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s in a request:\n%s", type(error).__name__, frames.rstrip())
