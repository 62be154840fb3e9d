"""What nobody else may read over a shoulder: which keys are secrets, and values without them. Knows no table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

MASK = "********"
_WORDS = "secret|password|passwd|passphrase|token|api[_-]?key|credential|authorization|cookie"
_SECRET = re.compile(rf"(^|[_-])({_WORDS})s?($|[_-])", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def is_secret(key: str, annotation: object = None) -> bool:
    """Say whether a key is a secret by its name or by its type."""
    return bool(_SECRET.search(key)) or any(kind.__name__ in str(annotation) for kind in (SecretStr, SecretBytes))


def masked(key: str, value: Any) -> Any:
    """Replace secrets, in tables within lists too."""
    if isinstance(value, (SecretStr, SecretBytes)) or (is_secret(key) and isinstance(value, str) and value):
        return MASK
    if isinstance(value, BaseModel):
        return masked(key, {k: getattr(value, k) for k in type(value).model_fields})
    if isinstance(value, Mapping):
        return {k: masked(str(k), v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(key, v) for v in value]
    return value


def without_users(text: str) -> str:
    """Return a text whose addresses name no user and password."""
    return _USER_IN_URL.sub(MASK, text)
