"""Write the reference files from the schema: `etc/optaned.toml`, every key commented, and `etc/optaned.schema.json`.

`python -m optaned.config.render etc` writes both. Knows the schema's shape, no key by name.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from optaned.config.explain import model_in
from optaned.config.schema import Config
from optaned.config.table import NotYet
from optaned.config.toml import Unset, toml_value

REFERENCE, SCHEMA = "optaned.toml", "optaned.schema.json"
COMMAND = "python -m optaned.config.render etc"
_HEAD = f"""\
#:schema {SCHEMA}
#
# optaned.toml: every key, what it means and its default. Remove the "#" before a key or table to set it.
# A text after "# " is an explanation, a "#" without a blank is a key that may be set.
#
# `optaned check` says what is wrong, `optaned check --show` what is in effect. Examples lie in examples/.
# Sizes are written "64GiB", durations as seconds or "5min", temperatures as °C.
#
# Written by `{COMMAND}` from the schema; do not edit it in the source tree.
"""


def render_reference() -> str:
    """Return the commented optaned.toml."""
    return f"{_HEAD}\n" + "\n".join(_table(Config, ())).rstrip() + "\n"


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of optaned.toml, for editors. Drivers' own keys are open in it: plugins know them."""
    schema = Config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "optaned.toml"}


def _table(model: type[BaseModel], at: tuple[str, ...]) -> Iterator[str]:
    inner: list[tuple[tuple[str, ...], type[BaseModel]]] = []
    for key, field in model.model_fields.items():
        below, is_map = model_in(field.annotation)
        if below is None:
            yield from _key(key, field)
        else:
            inner.append(((*at, key, _example_name(key)) if is_map else (*at, key), below))
    for path, below in inner:
        yield from ["", *_prose((below.__doc__ or "").strip())]
        yield f"#[{'.'.join(path)}]" if len(path) > 1 else f"[{path[0]}]"
        yield from _table(below, path)


def _key(key: str, field: FieldInfo) -> Iterator[str]:
    default = field.default
    notes = [field.description or ""]
    text = Unset() if default is PydanticUndefined else toml_value(default, field)
    if default is PydanticUndefined:
        notes.append("Required.")
    elif isinstance(text, Unset):
        notes.append("Not set by default.")
    elif default == ():
        notes.append("Empty by default.")
    notes += _choices(field)
    if field.examples and (isinstance(text, Unset) or default == ()):
        text = toml_value(field.examples[0])
    if isinstance(text, Unset):
        raise TypeError(f"schema: {key} has neither a default nor an example to show")
    yield from [*_prose(" ".join(notes)), f"#{key} = {text}"]


def _choices(field: FieldInfo) -> Iterator[str]:
    """Yield the values that a key can have, and what does nothing yet."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if choices:
        yield f"One of {', '.join(json.dumps(c) for c in choices)}."
    mark = next((m for m in field.metadata if isinstance(m, NotYet)), None)
    if mark:
        idle = [json.dumps(c) for c in choices if c not in mark.works]
        yield f"{', '.join(idle)} has no effect yet." if idle else "Has no effect yet."


def _prose(text: str) -> list[str]:
    lines = textwrap.wrap(" ".join(text.split()), 116)
    return [f"# {line}" for line in lines]


_NAMES: Mapping[str, str] = {"models": "my-model", "tiers": "dram0", "sensors": "dimms", "cooling": "fans"}


def _example_name(table: str) -> str:
    return _NAMES.get(table, "name")


def write_references(folder: Path) -> None:
    """Write both files into `folder`."""
    (folder / REFERENCE).write_text(render_reference(), encoding="utf-8")
    (folder / SCHEMA).write_text(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_references(Path(sys.argv[1]))
