"""Objects and arrays of a JSON schema as grammar rules. Knows their keywords; asks `visit` for what is inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optaned.api import GrammarError
from optaned_llamacpp.schema_rules import Rules, quote

Visit = Callable[[object, str], str]


def object_rule(rules: Rules, visit: Visit, schema: Mapping[str, Any], path: str) -> str:
    """Return the rule of an object. Properties keep their order, optional ones may be missing; raises GrammarError.

    Undeclared properties come only where `additionalProperties` invites them, or where none is declared at all.
    """
    properties = _mapping(schema.get("properties", {}), f"{path}.properties")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise GrammarError(f"{path}.required: must be a list of names")
    extra = schema.get("additionalProperties", not properties)
    for name in required:
        if name not in properties:
            if extra is False:
                raise GrammarError(f"{path}.required: {name!r} is not among the properties")
            properties[name] = extra
    members = {name: _member(rules, visit, name, value, path) for name, value in properties.items()}
    rest = {True: '""', False: '""'}
    if extra is not False:
        more = _extra(rules, visit, list(properties), extra, path)
        rest = {True: f'( {more} ( "," ws {more} )* )?', False: f'( "," ws {more} )*'}
    for name in reversed(members):
        rest = {first: _step(rules, members[name], rest, path, first=first, needed=name in required) for first in rest}
    return rules.add(path, f'"{{" ws {rest[True]} "}}"')


def _step(rules: Rules, member: str, rest: Mapping[bool, str], path: str, *, first: bool, needed: bool) -> str:
    """Return the rule for this member and all behind it; `first` when no member stands before it."""
    taken = ("" if first else '"," ws ') + f"{member} {rest[False]}"
    return rules.add(f"{path}-rest", taken if needed else f"{taken} | {rest[first]}")


def _member(rules: Rules, visit: Visit, name: str, schema: object, path: str) -> str:
    key = quote(json.dumps(name, ensure_ascii=False))
    return rules.add(f"{path}.{name}", f'{key} ":" ws {visit(schema, f"{path}.{name}")} ws')


def _extra(rules: Rules, visit: Visit, taken: Sequence[str], schema: object, path: str) -> str:
    value = visit(schema, f"{path}.additionalProperties")
    key = "string"
    if taken:
        if any(c in '"\\' or c < " " for name in taken for c in name):
            raise GrammarError(f"{path}: additionalProperties beside a property with quotes or controls in its name")
        key = f'"\\"" {_unlike(rules, sorted(taken), path)}'
    return rules.add(f"{path}-extra", f'{key} ":" ws {value} ws')


def _unlike(rules: Rules, taken: Sequence[str], path: str) -> str:
    """Return a rule for the rest of a quoted key that is none of `taken`: a tree over their characters.

    Escapes come only behind the first difference: an escape may spell the very character that must not come.
    """
    following: dict[str, list[str]] = {}
    for name in taken:
        if name:
            following.setdefault(name[0], []).append(name[1:])
    stops = "".join(f"\\U{ord(c):08x}" for c in following)
    parts = [rf'[^"\\\x00-\x1f\x7f{stops}] char* "\""']
    parts += [r'"\""'] if "" not in taken else []
    parts += [f"{quote(c)} {_unlike(rules, rest, path)}" for c, rest in following.items()]
    return rules.add(f"{path}-key", " | ".join(parts))


def array_rule(rules: Rules, visit: Visit, schema: Mapping[str, Any], path: str) -> str:
    """Return the rule of an array; the items of a tuple all come, in order. Raises GrammarError."""
    items = schema.get("items", True)
    fixed = items if isinstance(items, list) else schema.get("prefixItems", [])
    if not isinstance(fixed, list):
        raise GrammarError(f"{path}.prefixItems: must be a list of schemas")
    # Behind a tuple nothing more is needed, so nothing more comes unless the schema describes it.
    closed = bool(fixed) and (isinstance(items, list) or "items" not in schema)
    follow = False if closed else items
    least, most = limits(schema, "minItems", "maxItems", path)
    if most is not None and most < len(fixed):
        raise GrammarError(f"{path}.maxItems: is less than the items that are listed")
    if follow is False and least > len(fixed):
        raise GrammarError(f"{path}.minItems: is more than the items that are allowed")
    head = ' "," ws '.join(f"{visit(item, f'{path}.prefixItems.{n}')} ws" for n, item in enumerate(fixed))
    tail = ""
    if follow is not False:
        item = rules.add(f"{path}-item", f"{visit(follow, f'{path}.items')} ws")
        rest = None if most is None else most - len(fixed)
        tail = _items(rules, item, max(0, least - len(fixed)), rest, path, first=not fixed)
    return rules.add(path, f'"[" ws {head} {tail} "]"')


def _items(rules: Rules, item: str, least: int, most: int | None, path: str, *, first: bool) -> str:
    if most == 0:
        return ""
    further = rules.add(f"{path}-further", f'"," ws {item}')
    if not first:
        return rules.repeat(further, least, most, path)
    tail = rules.repeat(further, max(0, least - 1), None if most is None else most - 1, path)
    return f"{item} {tail}" if least else f"( {item} {tail} )?"


def limits(schema: Mapping[str, Any], least: str, most: str, path: str) -> tuple[int, int | None]:
    """Return the values of two counting keywords. Raises GrammarError unless they are whole, positive and in order."""
    low, high = schema.get(least, 0), schema.get(most)
    for value in (low, high):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise GrammarError(f"{path}: {least} and {most} must be whole numbers, not {value!r}")
    if high is not None and high < low:
        raise GrammarError(f"{path}: {most} is less than {least}")
    return low, high


def _mapping(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise GrammarError(f"{path}: must be an object")
    return dict(value)
