"""What all tables of the configuration share: frozen, strict, unknown keys refused, documented beside each field.

Knows no particular table. `not_yet` marks a key that is accepted and does nothing so far, so that a configuration is
written once, and setting such a key is a warning, not silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

NAME_PATTERN = r"^[a-z][a-z0-9_-]*$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")]


class Table(BaseModel):
    """A table with exactly these keys."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class OpenTable(Table):
    """A table whose further keys belong to a driver, which validates them with its own model."""

    model_config = ConfigDict(extra="allow")

    @property
    def driver_keys(self) -> dict[str, Any]:
        """Return the keys that the core does not know."""
        return dict(self.model_extra or {})


@dataclass(frozen=True, slots=True)
class NotYet:
    """Marks a key without effect so far; `works` are values that are already true today."""

    works: tuple[Any, ...] = ()


def not_yet(*works: Any) -> NotYet:
    """Return the marker for `Annotated[…]`: the key has no effect yet, except for these values."""
    return NotYet(works)


def _whole_or_auto(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError(f'must be "auto" or a whole number of at least 1, not {value!r}')


AutoCount = Annotated[
    Any,
    BeforeValidator(_whole_or_auto),
    Field(json_schema_extra={"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
]
