"""Chat answers on the wire: whole, and cut into chunks. Knows no engine and no request.

The constant parts of a chunk are encoded once an answer, so that a token costs one JSON string.
"""

from __future__ import annotations

from typing import Any

import msgspec

from optaned.engine.messages import Finished, Logprob, Piece
from optaned.hooks.drivers import ChatDelta, ChatParser
from optaned.server.wire import logprob_json, quote, timings_json


class PlainParser:
    """A parser that tells nothing apart: all is content."""

    def feed(self, text: str) -> ChatDelta:
        return ChatDelta(content=text)

    def finish(self) -> ChatDelta:
        return ChatDelta()


class ChatMessage:
    """One whole answer, collected piece by piece."""

    def __init__(self, index: int, parser: ChatParser, *, logprobs: bool) -> None:
        self._index = index
        self._parser = parser
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._logprobs: list[Logprob] | None = [] if logprobs else None
        self.reasoning_tokens = 0

    def piece(self, piece: Piece) -> None:
        """Add what one step brought."""
        delta = self._parser.feed(piece.text)
        if delta.reasoning and not delta.content:
            self.reasoning_tokens += len(piece.tokens)
        self._add(delta)
        if self._logprobs is not None:
            self._logprobs.extend(piece.logprobs)

    def _add(self, delta: ChatDelta) -> None:
        self._content.append(delta.content)
        self._reasoning.append(delta.reasoning)

    def finish(self, finished: Finished) -> dict[str, Any]:
        """Return the choice object."""
        self._add(self._parser.finish())
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content), "refusal": None}
        reasoning = "".join(self._reasoning)
        if reasoning:
            message["reasoning_content"] = reasoning
        return {
            "index": self._index,
            "message": message,
            "logprobs": None if self._logprobs is None else _logprobs(self._logprobs),
            "finish_reason": finished.reason.value,
        }


class ChatChunks:
    """One streamed answer: what each step adds, as complete events (or nothing)."""

    def __init__(self, index: int, parser: ChatParser, *, base: dict[str, Any], usage: bool, logprobs: bool) -> None:
        self._parser = parser
        self._logprobs = logprobs
        self._usage = b',"usage":null' if usage else b""
        # {"id":…,"choices":[]} is cut before its last two brackets, to be filled a chunk at a time.
        head = msgspec.json.encode({**base, "object": "chat.completion.chunk", "choices": []})
        self._head = b"data: " + head[:-2] + b'{"index":%d,"delta":' % index
        self._content = self._head + b'{"content":'
        self._tail = b'},"logprobs":null,"finish_reason":null}]' + self._usage + b"}\n\n"
        self._opening = self._head + b'{"role":"assistant","content":""' + self._tail
        self.reasoning_tokens = 0

    def piece(self, piece: Piece) -> bytes:
        """Return the events for one step; none while everything is held back."""
        delta = self._parser.feed(piece.text)
        if delta.reasoning and not delta.content:
            self.reasoning_tokens += len(piece.tokens)
        logprobs = piece.logprobs if self._logprobs else ()
        if not (delta.content or delta.reasoning or logprobs):
            return b""
        events = self._events(delta, logprobs)
        if self._opening:
            events, self._opening = self._opening + events, b""
        return events

    def _events(self, delta: ChatDelta, logprobs: tuple[Logprob, ...]) -> bytes:
        if logprobs:
            return self._with_logprobs(delta, logprobs)
        events = b""
        if delta.reasoning:
            events = self._head + b'{"reasoning_content":' + quote(delta.reasoning) + self._tail
        if delta.content:
            events += self._content + quote(delta.content) + self._tail
        return events

    def _with_logprobs(self, delta: ChatDelta, logprobs: tuple[Logprob, ...]) -> bytes:
        parts = {"content": delta.content} if delta.content or not delta.reasoning else {}
        if delta.reasoning:
            parts["reasoning_content"] = delta.reasoning
        body = b",".join(quote(name) + b":" + quote(text) for name, text in parts.items())
        listed = msgspec.json.encode(_logprobs(logprobs))
        return (
            self._head + b"{" + body + b'},"logprobs":' + listed + b',"finish_reason":null}]' + self._usage + b"}\n\n"
        )

    def finish(self, finished: Finished) -> bytes:
        """Return what was held back, and the chunk that says why the answer ended."""
        events = self._opening
        delta = self._parser.finish()
        if delta:
            events += self._events(delta, ())
        timings = msgspec.json.encode(timings_json(finished.usage, finished.timings))
        reason = finished.reason.value.encode()
        last = b'{},"logprobs":null,"finish_reason":"' + reason + b'"}]' + self._usage + b',"timings":' + timings
        return events + self._head + last + b"}\n\n"


def _logprobs(logprobs: list[Logprob] | tuple[Logprob, ...]) -> dict[str, Any]:
    return {"content": [logprob_json(logprob) for logprob in logprobs], "refusal": None}
