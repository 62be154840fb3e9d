"""Write single values as TOML does. Knows the units of the project, no key."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from optaned.units import parse_bytes

_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}


class Unset:
    """What TOML cannot write: there is no value."""


def toml_value(value: Any, field: FieldInfo | None = None) -> str | Unset:
    """Return a value's TOML text; its field says whether a number is a size in bytes."""
    if value is None:
        return Unset()
    if isinstance(value, int) and field is not None and _is_size(field):
        return json.dumps(_size(value))
    return _plain(value)


def _is_size(field: FieldInfo) -> bool:
    """Say whether a field is `Bytes` or `Bytes | None`."""
    marks = [*field.metadata, *(m for part in get_args(field.annotation) for m in get_args(part)[1:])]
    return any(isinstance(m, BeforeValidator) and m.func is parse_bytes for m in marks)


def quoted(text: str) -> str:
    """Return a text as a TOML string; JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{', '.join(_plain(v) for v in value)}]"
    if isinstance(value, BaseModel):
        return _plain({key: getattr(value, key) for key in type(value).model_fields})
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{quoted(str(k))} = {_plain(v)}" for k, v in value.items() if v is not None)
        return f"{{ {pairs} }}" if pairs else "{}"
    return quoted(str(value))


def _size(size_bytes: int) -> str:
    unit = next((u for u, factor in _SIZES.items() if size_bytes and size_bytes % factor == 0), None)
    return f"{size_bytes // _SIZES[unit]}{unit}" if unit else f"{size_bytes}B"
