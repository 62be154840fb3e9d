"""Every fault a client can see, as OpenAI's error object with its HTTP status. Knows no route and no engine."""

from __future__ import annotations

from typing import Any

import msgspec

from optaned.server.ports import Failure

# Clients give up at once when they are told to wait longer than two minutes.
_LONGEST_RETRY_S = 120


class ApiError(Exception):
    """A request that is refused: status, words for the client, the parameter at fault and a machine-readable code."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        """Return OpenAI's error object; all four members are always there."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def event(self) -> bytes:
        """Return the error as the last event of a stream."""
        return b"data: " + msgspec.json.encode(self.body) + b"\n\n"


_TYPES = {403: "permission_error", 429: "rate_limit_error"}

# code -> (status, seconds until a retry makes sense; None where trying again cannot help)
_FAILURES: dict[str, tuple[int, int | None]] = {
    "queue_full": (429, 5),
    "model_loading": (503, 10),
    "model_not_loaded": (503, 60),
    "thermal_trip": (503, 60),
    "shutting_down": (503, 5),
    "engine_died": (500, 1),
    "model_failed": (503, None),
    "cancelled": (500, None),
    "decode_failed": (500, None),
    "context_length_exceeded": (400, None),
    "prompt_empty": (400, None),
    "token_invalid": (400, None),
    "grammar_invalid": (400, None),
    "chat_invalid": (400, None),
    "embeddings_unsupported": (400, None),
    "trace_unsupported": (400, None),
    "move_refused": (409, None),
    "engine_paused": (503, 5),
}
_PARAMS = {
    "context_length_exceeded": "messages",
    "grammar_invalid": "response_format",
    "chat_invalid": "messages",
    "embeddings_unsupported": "model",
}


def api_error(failure: Failure, *, param: str | None = None) -> ApiError:
    """Translate an engine's failure; `param` is what the failing parameter is called in this endpoint."""
    status, retry_s = _FAILURES.get(failure.code, (500, None))
    if status < 429:
        return ApiError(status, failure.message, code=failure.code, param=param or _PARAMS.get(failure.code))
    retry_s = failure.retry_after_s if failure.retry_after_s is not None and retry_s is not None else retry_s
    headers = {"x-should-retry": "false" if retry_s is None else "true"}
    if retry_s is not None:
        headers["retry-after"] = str(min(max(int(retry_s), 1), _LONGEST_RETRY_S))
    return ApiError(status, failure.message, code=failure.code, headers=headers)


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """Return a 400: the request itself is at fault, and sending it again will not help."""
    return ApiError(400, message, param=param, code=code)
