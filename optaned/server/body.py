"""Read a request's body within its limits and turn it into a record. Knows no endpoint.

Whatever a client sends becomes a record or a 4xx: bytes that are not UTF-8, lone surrogates, NaN, numbers beyond a
double, nesting without end, names given twice, wrong types.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any, NoReturn, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from optaned.server.exchange import ClientLeft
from optaned.server.faults import ApiError, bad_request
from optaned.server.settings import ServerSettings
from optaned.units import format_bytes

T = TypeVar("T")

# Deeper than any JSON schema that people write, far from what recursion can bear.
MAX_DEPTH = 64
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_WHERE = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")
# What msgspec calls Python's types, in JSON's words.
_TYPES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
}
_CLOSE = {"connection": "close"}


async def read_body(request: Request, settings: ServerSettings) -> bytes:
    """Return the whole body. Raises ApiError 413 as soon as it is too large, 408 when it takes too long; ClientLeft."""
    limit = settings.max_body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            async for chunk in request.stream():
                size_bytes += len(chunk)
                if size_bytes > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        text = f"the request's body did not arrive within {settings.body_timeout_s:g} s"
        raise ApiError(408, text, code="request_timeout", headers=_CLOSE) from None
    except ClientDisconnect:
        raise ClientLeft from None
    return b"".join(chunks)


def _too_large(limit: int) -> ApiError:
    text = f"the request's body is larger than {format_bytes(limit)}, the limit that [server] max_body sets"
    return ApiError(413, text, code="request_too_large", headers=_CLOSE)


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in `body`. Raises ApiError 400 for anything else."""
    try:
        text = body.decode()
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
        )
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8 (byte {error.start})", code="invalid_json") from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise bad_request(f"the body is not JSON: {error.msg} at {place}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object", code="invalid_json")
    _check_depth(value)
    if _SURROGATE.search(text):
        _check_text(value)
    return value


def convert(value: dict[str, Any], kind: type[T]) -> T:
    """Return `value` as a record of type `kind`; null means not given. Raises ApiError 400 that names the parameter."""
    given = {name: item for name, item in value.items() if item is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise _mistyped(str(error)) from None


def _mistyped(message: str) -> ApiError:
    """Return msgspec's complaint in our words: the SDKs show their users the message alone, so it names the place."""
    where = _WHERE.search(message)
    param = where[1].removesuffix("[...]") if where else ""
    missing = _MISSING.search(message)
    if missing:
        param = f"{param}.{missing[1]}".lstrip(".")
        return bad_request(f"{param} is required", param=param)
    fault = re.sub(r"`([^`]*)`", _types, _WHERE.sub("", message)).replace("Invalid enum value", "unknown value")
    fault = fault[:1].lower() + fault[1:200]
    return bad_request(f"{param}: {fault}" if param else fault, param=param or None)


def _types(names: re.Match[str]) -> str:
    """Return msgspec's `str | array | null` as people call it; null means not given, and is no value to advise."""
    return " or ".join(_TYPES.get(name, name) for name in names[1].split(" | ") if name != "null") or "null"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise bad_request(f"the name {_shown(twice)} is given twice in one object", code="invalid_json")
    return value


def _no_constant(name: str) -> NoReturn:
    raise bad_request(f"{name} is not JSON", code="invalid_json")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise bad_request("a number is too large", code="invalid_json")
    return value


def _integer(digits: str) -> int:
    # 64 bits are what every part behind this one counts with.
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
        raise bad_request("an integer is too large", code="invalid_json")
    return int(digits)


def _check_depth(value: dict[str, Any]) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        items = (item for part in level for item in (part.values() if type(part) is dict else part))
        level = [item for item in items if type(item) is dict or type(item) is list]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ApiError:
    return bad_request(f"the body is nested deeper than {MAX_DEPTH} levels", code="invalid_json")


def _check_text(value: dict[str, Any]) -> None:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise bad_request("a string holds half of a surrogate pair", code="invalid_json") from None


def _shown(name: str) -> str:
    return ascii(name[:40])
