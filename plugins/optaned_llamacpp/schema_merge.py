"""Join two JSON schemas that must both hold (allOf, keywords beside anyOf). Knows keywords; knows no grammar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optaned.api import GrammarError

_HIGHER_IS_STRICTER = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems"})
_LOWER_IS_STRICTER = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems"})


def merge(first: Mapping[str, Any], second: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return one schema for both. Raises GrammarError where no single schema says the same."""
    joined = dict(first)
    for key, value in second.items():
        joined[key] = _join(key, joined[key], value, path) if key in joined and joined[key] != value else value
    return joined


def _join(key: str, one: Any, other: Any, path: str) -> Any:
    if key == "properties":
        return {**one, **{k: _both(one[k], v, f"{path}.{k}") if k in one else v for k, v in other.items()}}
    if key == "required":
        return [*one, *(name for name in other if name not in one)]
    if key == "type":
        common = [t for t in _listed(one) if t in _listed(other)]
        return _some(common, key, path)
    if key == "enum":
        return _some([v for v in one if v in other], key, path)
    if key == "allOf":
        return [*one, *other]
    if key in _HIGHER_IS_STRICTER:
        return max(one, other)
    if key in _LOWER_IS_STRICTER:
        return min(one, other)
    raise GrammarError(f"{path}: {key!r} is given twice, and the two cannot be joined")


def _both(one: Any, other: Any, path: str) -> Any:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return merge(one, other, path)
    return one if other is True else other


def _listed(types: Any) -> list[Any]:
    return types if isinstance(types, list) else [types]


def _some(values: list[Any], key: str, path: str) -> list[Any]:
    if not values:
        raise GrammarError(f"{path}: nothing fits both {key}s")
    return values
