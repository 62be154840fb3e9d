"""Strings and numbers of a JSON schema as grammar rules. Knows their keywords."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from optaned.api import GrammarError
from optaned_llamacpp.numbers import decimals, integers
from optaned_llamacpp.patterns import pattern_to_gbnf
from optaned_llamacpp.schema_containers import limits
from optaned_llamacpp.schema_rules import Rules

_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_LABEL = r"[A-Za-z0-9]{1,30}"
# Narrower than the standards where those need counting: every month ends on the 28th.
FORMATS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "duration": r"^P(\d{1,6}W|\d{1,6}D(T\d{1,6}[HMS])?|T\d{1,6}[HMS])$",
    "uuid": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    "email": rf"^[A-Za-z0-9_+-]{{1,30}}(\.[A-Za-z0-9_+-]{{1,30}}){{0,3}}@({_LABEL}\.){{1,3}}[A-Za-z]{{2,10}}$",
    "hostname": rf"^{_LABEL}(\.{_LABEL}){{0,4}}$",
    "ipv4": rf"^({_BYTE}\.){{3}}{_BYTE}$",
    "uri": r"^[a-z]{1,10}://[A-Za-z0-9._~:/?#@!$&'()*+,;=-]{1,200}$",
}


def string_rule(rules: Rules, schema: Mapping[str, Any], path: str) -> str:
    """Return the rule of a constrained string. Raises GrammarError."""
    kinds = {"length" if keyword.endswith("Length") else keyword for keyword in schema}
    if len(kinds) > 1:
        raise GrammarError(f"{path}: only one of pattern, format and length can be enforced at once")
    if "format" in schema:
        pattern = FORMATS.get(schema["format"]) if isinstance(schema["format"], str) else None
        if pattern is None:
            raise GrammarError(f"{path}.format: {schema['format']!r} is none of {', '.join(FORMATS)}")
        return rules.add_once(f"format-{schema['format']}", _quoted(pattern_to_gbnf(pattern)))
    if "pattern" in schema:
        return rules.add(path, _quoted(pattern_to_gbnf(str(schema["pattern"]))))
    least, most = limits(schema, "minLength", "maxLength", path)
    return rules.add(path, _quoted(rules.repeat("char", least, most, path)))


def number_rule(rules: Rules, schema: Mapping[str, Any], path: str, *, whole: bool) -> str:
    """Return the rule of a bounded number. Raises GrammarError for empty bounds and, of decimals, fractional ones."""
    least, least_open = _bound(schema, "minimum", "exclusiveMinimum", path, max)
    most, most_open = _bound(schema, "maximum", "exclusiveMaximum", path, min)
    if not whole and any(bound is not None and bound != int(bound) for bound in (least, most)):
        raise GrammarError(f"{path}: bounds of a number can be enforced only where they are whole")
    try:
        if whole:
            low = None if least is None else math.floor(least) + 1 if least_open else math.ceil(least)
            high = None if most is None else math.ceil(most) - 1 if most_open else math.floor(most)
            return rules.add(path, integers(low, high))
        low, high = (None if bound is None else int(bound) for bound in (least, most))
        return rules.add(path, decimals(low, high, least_open=least_open, most_open=most_open))
    except ValueError as error:
        raise GrammarError(f"{path}: {error}") from error


def _quoted(inside: str) -> str:
    return rf'"\"" {inside} "\""'


def _bound(
    schema: Mapping[str, Any], closed: str, opened: str, path: str, stricter: Callable[[Iterable[float]], float]
) -> tuple[float | None, bool]:
    found = [(schema[keyword], keyword == opened) for keyword in (closed, opened) if keyword in schema]
    for value, _ in found:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
            raise GrammarError(f"{path}: {closed} and {opened} must be numbers below 1e15, not {value!r}")
    if not found:
        return None, False
    limit = stricter(value for value, _ in found)
    return limit, any(is_open for value, is_open in found if value == limit)
