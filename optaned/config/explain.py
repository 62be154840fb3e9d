"""Turn what pydantic found wrong into lines for people: key path, fault, the likely meaning. Knows no file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from optaned.config.masking import MASK, is_secret
from optaned.config.toml import quoted
from optaned.hooks.suggest import did_you_mean

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong at one place. `source` replaces the file's name where the value came from elsewhere."""

    path: Path
    text: str
    source: str = ""

    def line(self, file: str) -> str:
        """Return `file: key.path: what is wrong`."""
        key = key_of(self.path)
        return f"{self.source or file}: {key}: {self.text}" if key else f"{self.source or file}: {self.text}"


def key_of(path: Path) -> str:
    """Return a path as TOML writes it: `("models", "a.b", "files", 0)` is `models."a.b".files[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part.replace("-", "").replace("_", "").isalnum() and part.isascii()
            text += ("." if text else "") + (part if bare else quoted(part))
    return text


def faults_of(
    error: ValidationError, model: type[BaseModel], *, at: Path = (), also: Iterable[str] = ()
) -> list[Fault]:
    """Return one fault for each of pydantic's errors; `also` are further keys that are known at the top."""
    return [_fault(details, model, at, also) for details in error.errors(include_url=False)]


def _fault(details: ErrorDetails, model: type[BaseModel], at: Path, also: Iterable[str]) -> Fault:
    loc = details["loc"]
    if loc and loc[-1] == "[key]":  # the name of a table, not its content
        return Fault((*at, *loc[:-1]), f"{loc[-2]!r} cannot be a name here; names are like 'my-name0'")
    kind = details["type"]
    if kind == "extra_forbidden":
        known = [*keys_of(model, loc[:-1]), *(also if len(loc) == 1 else ())]
        return Fault((*at, *loc), f"unknown key{did_you_mean(str(loc[-1]), known)}")
    value = details.get("input")
    if kind.startswith("string_") and _is_secret(model, loc):
        return Fault((*at, *loc), f"must be text in quotes, not {MASK}")
    if kind == "string_pattern_mismatch" and (example := _example(model, loc)):
        return Fault((*at, *loc), f"must be like {_shown(example)}, not {_shown(value)}")
    words = _WORDS.get(kind)
    text = words(details.get("ctx", {}), value) if words else f"{details['msg'][:1].lower()}{details['msg'][1:]}"
    return Fault((*at, *loc), text)


def _shown(value: object) -> str:
    """Return a value for a message, short."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _must_be(what: str) -> Callable[[Mapping[str, Any], object], str]:
    return lambda _, value: f"must be {what}, not {_shown(value)}"


def _bound(words: str, key: str) -> Callable[[Mapping[str, Any], object], str]:
    return lambda context, value: f"must be {words} {context[key]:g}, not {_shown(value)}"


def _choice(context: Mapping[str, Any], value: object) -> str:
    expected = str(context["expected"])
    known = [part.strip("'") for part in expected.replace(" or ", ", ").split(", ")]
    return f"must be {expected}, not {_shown(value)}{did_you_mean(str(value), known)}"


_WORDS: dict[str, Callable[[Mapping[str, Any], object], str]] = {
    "missing": lambda _, __: "is required",
    "value_error": lambda context, _: str(context["error"]),
    "literal_error": _choice,
    "enum": _choice,
    "string_type": _must_be('text in quotes ("…")'),
    "path_type": _must_be('a path in quotes ("…")'),
    "int_type": _must_be("a whole number"),
    "int_from_float": _must_be("a whole number"),
    "float_type": _must_be("a number"),
    "finite_number": _must_be("a finite number"),
    "bool_type": _must_be("true or false"),
    "tuple_type": _must_be("a list [ … ]"),
    "list_type": _must_be("a list [ … ]"),
    "dict_type": _must_be("a table"),
    "model_type": _must_be("a table"),
    "model_attributes_type": _must_be("a table"),
    "greater_than": _bound("greater than", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("less than", "lt"),
    "less_than_equal": _bound("at most", "le"),
    "string_pattern_mismatch": lambda context, value: f"{_shown(value)} does not look like {context['pattern']}",
}


def _is_secret(model: type[BaseModel], path: Path) -> bool:
    owner, key = model_at(model, path[:-1]), str(path[-1])
    field = owner.model_fields.get(key) if owner else None
    return is_secret(key, field.annotation if field else None)


def _example(model: type[BaseModel], path: Path) -> object:
    """Return an example of the value at `path`, or its default, or None."""
    owner = model_at(model, path[:-1] if isinstance(path[-1], str) else path[:-2])
    name, is_item = (path[-2], True) if isinstance(path[-1], int) else (path[-1], False)
    field = owner.model_fields.get(str(name)) if owner else None
    if field is None:
        return None
    example = field.examples[0] if field.examples else field.get_default()
    if is_item:
        return example[0] if isinstance(example, (list, tuple)) and example else None
    return example if isinstance(example, str) else None


def _is_model(where: object) -> bool:
    return isinstance(where, type) and issubclass(where, BaseModel)


def model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model in a field's annotation, and whether the field holds many of it (a table of tables, a list)."""
    if _is_model(annotation):
        return annotation, False
    models = [a for a in get_args(annotation) if _is_model(a)]
    return (models[0], get_origin(annotation) in (dict, tuple, list)) if models else (None, False)


def keys_of(model: type[BaseModel], path: Path) -> list[str]:
    """Return the keys that a model knows at `path`, or nothing where the path leads outside."""
    where = model_at(model, path)
    return list(where.model_fields) if where else []


def model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """Return the model of the table at `path`, or None where the path leads outside."""
    where: type[BaseModel] | None = model
    each = False
    for part in path:
        if each:
            each = False
            continue
        field = where.model_fields.get(str(part)) if where else None
        where, each = model_in(field.annotation) if field else (None, False)
    return where
