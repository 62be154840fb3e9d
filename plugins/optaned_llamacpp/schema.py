"""From a JSON schema to a GBNF grammar. Knows types, references and combinations; knows neither tokens nor the library.

Every sentence of the grammar fits the schema. Where a schema leaves something open the grammar may be narrower, and a
keyword that it cannot enforce is an error: a constraint silently dropped is a promise broken in front of the client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from optaned.api import GrammarError
from optaned_llamacpp.schema_containers import array_rule, object_rule
from optaned_llamacpp.schema_merge import merge
from optaned_llamacpp.schema_rules import Rules, quote
from optaned_llamacpp.schema_scalars import number_rule, string_rule

_DEEPEST = 64
_DESCRIBING = {"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"}
_NAMING = {"$schema", "$id", "$comment", "$anchor", "$defs", "definitions", "discriminator"}
_ANNOTATIONS = _DESCRIBING | _NAMING | {"contentMediaType", "contentEncoding"}
_KEYWORDS = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
}
_KNOWN = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}).union(*_KEYWORDS.values())
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def schema_to_gbnf(schema: Mapping[str, Any]) -> str:
    """Return a grammar for JSON texts that fit `schema`; {} is any JSON object. Raises GrammarError naming the path."""
    converter = _Converter(schema)
    root = converter.rules.reserve("root")
    try:
        body = converter.visit(schema, "schema") if set(schema) - _ANNOTATIONS else "object"
    except RecursionError as error:
        raise GrammarError("schema: is nested too deep") from error
    converter.rules.set(root, body)
    return converter.rules.text()


class _Converter:
    """Turns schemas into expressions that stand alone in a sequence; what is big becomes a rule of its own."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.rules = Rules()
        self._root = root
        self._references: dict[str, str] = {}
        self._depth = 0

    def visit(self, schema: object, path: str) -> str:
        """Return the expression for `schema`; `path` is where it stands, for messages and rule names."""
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, Mapping):
            raise GrammarError(f"{path}: {json.dumps(schema)} is not a schema that anything fits")
        if self._depth >= _DEEPEST:
            raise GrammarError(f"{path}: is nested deeper than {_DEEPEST}")
        self._depth += 1
        try:
            return self._visit({k: v for k, v in schema.items() if k not in _ANNOTATIONS}, path)
        finally:
            self._depth -= 1

    def _visit(self, schema: dict[str, Any], path: str) -> str:
        for keyword in schema:
            if keyword not in _KNOWN:
                raise GrammarError(f"{path}: keyword {keyword!r} is not supported")
        if not schema:
            return "value"
        if "$ref" in schema and len(schema) == 1:
            return self._reference(schema["$ref"], path)
        if "$ref" in schema or "allOf" in schema:
            return self.visit(self._joined(schema, path), path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._union(schema, keyword, path)
        if "const" in schema or "enum" in schema:
            return _literals(schema, path)
        types = schema.get("type", _implied(schema))
        if isinstance(types, list) and types:
            return f"( {' | '.join(self._typed(name, schema, path) for name in types)} )"
        return self._typed(types, schema, path)

    def _typed(self, name: object, schema: Mapping[str, Any], path: str) -> str:
        if not isinstance(name, str) or name not in _TYPES:
            raise GrammarError(f"{path}.type: {name!r} is none of {', '.join(_TYPES)}")
        # A keyword of another type has no effect on this one; that is the standard, not an oversight.
        own_keywords = _KEYWORDS.get("number" if name == "integer" else name, frozenset())
        own = {k: v for k, v in schema.items() if k in own_keywords}
        if not own:
            return name
        if name == "object":
            return object_rule(self.rules, self.visit, own, path)
        if name == "array":
            return array_rule(self.rules, self.visit, own, path)
        if name == "string":
            return string_rule(self.rules, own, path)
        return number_rule(self.rules, own, path, whole=name == "integer")

    def _resolve(self, reference: object, path: str) -> Any:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise GrammarError(f"{path}.$ref: {reference!r} does not point into this schema")
        target: Any = self._root
        for part in reference.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(key)] if isinstance(target, list) else target[key]
            except (KeyError, IndexError, ValueError, TypeError) as error:
                raise GrammarError(f"{path}.$ref: {reference!r} points to nothing") from error
        return target

    def _reference(self, reference: object, path: str) -> str:
        target = self._resolve(reference, path)
        key = str(reference)
        if key not in self._references:
            # The name comes before the body, so that a schema may refer to itself.
            self._references[key] = name = self.rules.reserve(key.rsplit("/", 1)[-1])
            self.rules.set(name, self.visit(target, key))
        return self._references[key]

    def _joined(self, schema: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Return one schema for all that must hold at once."""
        joined = {k: v for k, v in schema.items() if k not in {"$ref", "allOf"}}
        parts = [self._resolve(schema["$ref"], path)] if "$ref" in schema else []
        more = schema.get("allOf", [])
        if not isinstance(more, list):
            raise GrammarError(f"{path}.allOf: must be a list of schemas")
        for part in [*parts, *more]:
            if not isinstance(part, Mapping):
                raise GrammarError(f"{path}.allOf: every part must be a schema with keywords")
            joined = merge(joined, {k: v for k, v in part.items() if k not in _ANNOTATIONS}, path)
        return joined

    def _union(self, schema: Mapping[str, Any], keyword: str, path: str) -> str:
        beside = {k: v for k, v in schema.items() if k != keyword}
        options = schema[keyword]
        if not isinstance(options, list) or not options:
            raise GrammarError(f"{path}.{keyword}: must be a list of schemas")
        parts = []
        for number, option in enumerate(options):
            here = f"{path}.{keyword}.{number}"
            whole = self._joined({"allOf": [beside, option]}, here) if beside and option is not True else option
            parts.append(self.visit(beside if beside and option is True else whole, here))
        return f"( {' | '.join(parts)} )"


def _implied(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema without `type` speaks of: a constraint on one type is meant for that type."""
    return [name for name, keywords in _KEYWORDS.items() if keywords & set(schema)]


def _literals(schema: Mapping[str, Any], path: str) -> str:
    values = [schema["const"]] if "const" in schema else schema["enum"]
    if not isinstance(values, list):
        raise GrammarError(f"{path}.enum: must be a list")
    if set(schema) - {"const", "enum", "type"}:
        raise GrammarError(f"{path}: enum or const beside other constraints is not supported")
    types = schema.get("type", list(_TYPES))
    allowed = {types} if isinstance(types, str) else set(types)
    fitting = [value for value in values if _types_of(value) & allowed]
    if not fitting:
        raise GrammarError(f"{path}: no value of enum or const fits the type")
    return f"( {' | '.join(quote(json.dumps(value, ensure_ascii=False)) for value in fitting)} )"


def _types_of(value: object) -> set[str]:
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, (int, float)):
        return {"number", "integer"} if value == int(value) else {"number"}
    if isinstance(value, str):
        return {"string"}
    return {"array"} if isinstance(value, list) else {"object"}
