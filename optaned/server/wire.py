"""The pieces of JSON that chat and plain completions have in common. Knows no request and no stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from optaned.domain.generation import Timings, Usage
from optaned.engine.messages import Logprob

DONE = b"data: [DONE]\n\n"
# What clients read for "practically impossible": JSON has no infinity.
_LEAST_LOGPROB = -9999.0


def quote(text: str) -> bytes:
    """Return text as a JSON string in ASCII: some clients break lines at U+2028 or U+0085, and would cut the event."""
    return json.dumps(text).encode("ascii")


def event(payload: Mapping[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def usage_json(usage: Usage, reasoning_tokens: int = 0) -> dict[str, Any]:
    """Return OpenAI's usage object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }


def timings_json(usage: Usage, timings: Timings) -> dict[str, float]:
    """Return where the time went, in the names that users of local servers know (milliseconds, tokens a second)."""
    computed = max(usage.prompt_tokens - usage.cached_tokens, 0)
    return {
        "queued_ms": _ms(timings.queued_s),
        "cache_n": usage.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": _ms(timings.prefill_s),
        "prompt_per_second": _rate(computed, timings.prefill_s),
        "predicted_n": usage.completion_tokens,
        "predicted_ms": _ms(timings.decode_s),
        "predicted_per_second": _rate(usage.completion_tokens, timings.decode_s),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 3) if seconds > 0 else 0.0


def logprob_json(logprob: Logprob) -> dict[str, Any]:
    """Return one token's entry of a chat's `logprobs.content`."""
    return {
        **_token(logprob.piece, logprob.logprob),
        "top_logprobs": [_token(piece, value) for piece, value in logprob.top],
    }


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text_of(piece), "logprob": finite(logprob), "bytes": list(piece)}


def text_of(piece: bytes) -> str:
    """Return a token's bytes as text; a part of a character shows as U+FFFD."""
    return piece.decode("utf-8", "replace")


def finite(logprob: float) -> float:
    """Return a logarithm that JSON can hold."""
    return max(logprob, _LEAST_LOGPROB)
