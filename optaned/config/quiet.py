"""Find keys that are set and have no effect yet, by their `not_yet` marks in the schema. Knows no table by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from optaned.config.explain import Fault
from optaned.config.load import Draft, lines
from optaned.config.schema import Config
from optaned.config.table import NotYet


def warnings_of(draft: Draft, *, only: Collection[str] | None = None) -> tuple[str, ...]:
    """Return one line for each key that is set and has no effect yet; `only` limits them to some tables."""
    found = (f for f in _quiet(Config, draft.config, draft.raw, ()) if only is None or f.path[0] in only)
    return tuple(lines(tuple(found), draft.file))


def _quiet(
    model: type[BaseModel], values: BaseModel, raw: Mapping[str, Any], at: tuple[str | int, ...]
) -> Iterator[Fault]:
    for key, field in model.model_fields.items():
        if key not in raw:
            continue
        value = getattr(values, key)
        mark = next((m for m in field.metadata if isinstance(m, NotYet)), None)
        if mark and value not in mark.works:
            yield Fault((*at, key), "has no effect yet")
        yield from _inside(value, raw[key], (*at, key))


def _inside(value: object, raw: Any, at: tuple[str | int, ...]) -> Iterator[Fault]:
    if isinstance(value, BaseModel):
        yield from _quiet(type(value), value, raw, at)
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _inside(entry, raw[name], (*at, name))
