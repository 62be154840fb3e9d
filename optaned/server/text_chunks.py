"""Plain completions on the wire: whole, and cut into chunks. Knows no engine and no request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from optaned.engine.messages import Finished, Logprob, Piece
from optaned.server.wire import finite, quote, text_of, timings_json


class _Logprobs:
    """The old list-shaped logprobs; `text_offset` counts from the start of the answer."""

    def __init__(self) -> None:
        self._offset = 0

    def take(self, logprobs: Sequence[Logprob]) -> dict[str, Any]:
        tokens = [text_of(logprob.piece) for logprob in logprobs]
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [finite(logprob.logprob) for logprob in logprobs],
            "top_logprobs": [{text_of(piece): finite(p) for piece, p in logprob.top} for logprob in logprobs],
            "text_offset": offsets,
        }


class TextAnswer:
    """One whole completion, collected piece by piece."""

    def __init__(self, index: int, *, logprobs: bool) -> None:
        self._index = index
        self._texts: list[str] = []
        self._logprobs: list[Logprob] | None = [] if logprobs else None
        self.reasoning_tokens = 0

    def piece(self, piece: Piece) -> None:
        """Add what one step brought."""
        self._texts.append(piece.text)
        if self._logprobs is not None:
            self._logprobs.extend(piece.logprobs)

    def finish(self, finished: Finished) -> dict[str, Any]:
        """Return the choice object."""
        return {
            "index": self._index,
            "text": "".join(self._texts),
            "logprobs": None if self._logprobs is None else _Logprobs().take(self._logprobs),
            "finish_reason": finished.reason.value,
        }


class TextChunks:
    """One streamed completion: what each step adds, as complete events (or nothing)."""

    def __init__(self, index: int, *, base: dict[str, Any], usage: bool, logprobs: bool) -> None:
        self._logprobs = _Logprobs() if logprobs else None
        self._usage = b',"usage":null' if usage else b""
        head = msgspec.json.encode({**base, "object": "text_completion", "choices": []})
        self._head = b"data: " + head[:-2] + b'{"index":%d,"text":' % index
        self._tail = b',"logprobs":null,"finish_reason":null}]' + self._usage + b"}\n\n"
        self.reasoning_tokens = 0

    def piece(self, piece: Piece) -> bytes:
        """Return the event for one step; none while everything is held back."""
        if self._logprobs is not None and piece.logprobs:
            listed = msgspec.json.encode(self._logprobs.take(piece.logprobs))
            tail = b',"logprobs":' + listed + b',"finish_reason":null}]' + self._usage + b"}\n\n"
            return self._head + quote(piece.text) + tail
        return self._head + quote(piece.text) + self._tail if piece.text else b""

    def finish(self, finished: Finished) -> bytes:
        """Return the chunk that says why the answer ended."""
        timings = msgspec.json.encode(timings_json(finished.usage, finished.timings))
        reason = finished.reason.value.encode()
        last = b'"","logprobs":null,"finish_reason":"' + reason + b'"}]' + self._usage + b',"timings":' + timings
        return self._head + last + b"}\n\n"
