"""Single keys from the environment: OPTANED__SERVER__QUEUE=16 is `server.queue = 16`. Knows no other variable.

For containers and trials. Names are upper case and parts are joined by two underscores, so that a model or tier with a
dash in its name is out of reach.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from optaned.config.explain import Fault

PREFIX = "OPTANED__"
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_FLOAT = re.compile(r"-?(0|[1-9]\d*)\.\d+")


def overrides(environ: Mapping[str, str], tables: dict[str, Any]) -> tuple[dict[tuple[str, ...], str], list[Fault]]:
    """Set the environment's keys in `tables`; return each key's variable, and faults for those that fit nowhere."""
    origins: dict[tuple[str, ...], str] = {}
    strays = []
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        path = tuple(variable.removeprefix(PREFIX).lower().split("__"))
        if all(path) and _set(tables, path, _value(environ[variable])):
            origins[path] = variable
        else:
            strays.append(Fault((), "names no key; write it like OPTANED__SERVER__QUEUE", f"environment {variable}"))
    return origins, strays


def _set(tables: dict[str, Any], path: tuple[str, ...], value: object) -> bool:
    *above, key = path
    where: Any = tables
    for part in above:
        where = where.setdefault(part, {})
        if not isinstance(where, dict):
            return False
    where[key] = value
    return True


def _value(text: str) -> object:
    """Read a number, true or false as TOML would ("0660" is no number there); everything else is text."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
