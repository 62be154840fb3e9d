"""All effective values of a configuration, each with where it comes from; secrets are masked. Knows no driver."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from optaned.config.explain import key_of
from optaned.config.load import Draft
from optaned.config.masking import masked, without_users
from optaned.config.table import OpenTable
from optaned.config.toml import Unset, toml_value

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """One key's effective value, as TOML writes it (None: unset), and its origin."""

    path: KeyPath
    text: str | None
    origin: str

    @property
    def key(self) -> str:
        return key_of(self.path)


def settings_of(draft: Draft, options: Mapping[tuple[str, str], BaseModel]) -> tuple[Setting, ...]:
    """Return every setting; `options` are the drivers' validated options by the table that they belong to."""
    walked = _walk(draft.config, (), options)
    return tuple(Setting(path, text, _origin(path, draft)) for path, text in walked)


def _walk(
    table: BaseModel,
    at: KeyPath,
    options: Mapping[tuple[str, str], BaseModel],
    *,
    shown: Collection[str] = (),
) -> Iterator[tuple[KeyPath, str | None]]:
    """Yield plain keys before tables, as TOML needs it."""
    inner: list[tuple[KeyPath, BaseModel]] = []
    for key, field in type(table).model_fields.items():
        value = getattr(table, key)
        if key in shown:
            continue
        if isinstance(value, BaseModel):
            inner.append(((*at, key), value))
        elif isinstance(value, Mapping) and all(isinstance(v, BaseModel) for v in value.values()):
            inner += (((*at, key, name), entry) for name, entry in value.items())
        else:
            yield (*at, key), _text(key, value, field)
    own = options.get((at[0], at[1])) if len(at) == 2 else None
    if own is not None and isinstance(table, OpenTable):
        yield from _walk(own, at, {}, shown=type(table).model_fields)
    for path, value in inner:
        yield from _walk(value, path, options)
    for (first, second), value in options.items():
        if at == (first,) and isinstance(table, OpenTable):
            yield from _walk(value, (first, second), {})


def _text(key: str, value: object, field: FieldInfo) -> str | None:
    text = toml_value(masked(key, value), field)
    return None if isinstance(text, Unset) else without_users(text)


def _origin(path: KeyPath, draft: Draft) -> str:
    if path in draft.environment:
        return f"environment {draft.environment[path]}"
    where: Any = draft.raw
    for part in path:
        if not isinstance(where, Mapping) or part not in where:
            return "default"
        where = where[part]
    return "file"
