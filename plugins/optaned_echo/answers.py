"""From a prompt to the bytes of its answer. Knows ChatML's control tokens and JSON schemas, no model state."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from optaned.api import Sampling
from optaned_echo.directives import Script, parse
from optaned_echo.vocabulary import END_TURN, SCHEMA_MARK, START_TURN, plain_text

_SMALLEST: dict[str, Any] = {"string": "", "number": 0, "integer": 0, "boolean": False, "null": None}
_MAX_DEPTH = 32


def script_of(prompt: Sequence[int]) -> Script:
    """Return what the last user turn of a prompt asks for; a prompt without turns is one message."""
    return parse(_last_message(list(prompt)))


def answer_text(script: Script, sampling: Sampling, *, grammar_answer: str | None) -> str:
    """Return the whole answer."""
    if sampling.grammar is not None:
        return fitting_document(sampling.grammar) if grammar_answer is None else grammar_answer
    if script.show_sampling:
        return json.dumps(dataclasses.asdict(sampling))
    return script.text


def fitting_document(grammar: str) -> str:
    """Return the smallest JSON document for a grammar that was made from a schema, else {}."""
    for line in grammar.splitlines():
        if line.startswith(SCHEMA_MARK):
            schema = json.loads(line.removeprefix(SCHEMA_MARK))
            return json.dumps(_smallest(schema, schema, depth=0))
    return "{}"


def _smallest(schema: Any, root: Mapping[str, Any], *, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {}
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "$ref" in schema:
        return _smallest(_referred(schema["$ref"], root), root, depth=depth + 1)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return _smallest(schema[choice][0], root, depth=depth + 1)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        return [_smallest(schema.get("items", {}), root, depth=depth + 1)] * schema.get("minItems", 0)
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _smallest(properties.get(name, {}), root, depth=depth + 1) for name in schema.get("required", ())}
    return _SMALLEST.get(kind, {})


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return found


def _last_message(tokens: list[int]) -> str:
    user = list(b"user\n")
    end = len(tokens)
    for start in range(len(tokens) - 1, -1, -1):
        if tokens[start] != START_TURN:
            continue
        turn = tokens[start + 1 : end]
        if turn[: len(user)] == user:
            turn = turn[len(user) :]
            return plain_text(turn[: turn.index(END_TURN)] if END_TURN in turn else turn)
        end = start
    return plain_text(tokens)
