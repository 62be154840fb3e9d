"""A JSON schema becomes a grammar that promises what the schema says, or an error that names the path."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optaned.api import GrammarError
from optaned_llamacpp.gbnf import check_gbnf
from optaned_llamacpp.numbers import decimals, integers
from optaned_llamacpp.patterns import pattern_to_gbnf
from optaned_llamacpp.schema import schema_to_gbnf
from optaned_llamacpp.schema_scalars import FORMATS

UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"type": "object", "patternProperties": {}}, "schema: keyword 'patternProperties'"),
    ({"properties": {"a": {"not": {}}}}, "schema.a: keyword 'not'"),
    ({"properties": {"a": {"type": "array", "uniqueItems": True}}}, "schema.a: keyword 'uniqueItems'"),
    ({"type": "number", "multipleOf": 2}, "keyword 'multipleOf'"),
    ({"type": "text"}, "schema.type: 'text' is none of object"),
    ({"type": []}, "schema.type"),
    ({"type": "number", "minimum": 0.5}, "only where they are whole"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "no number lies within"),
    ({"type": "integer", "minimum": "1"}, "must be numbers"),
    ({"type": "string", "format": "phone"}, "schema.format: 'phone' is none of date"),
    ({"type": "string", "format": "date", "maxLength": 3}, "only one of pattern, format and length"),
    ({"type": "string", "pattern": "(?=a)"}, "look-around"),
    ({"type": "string", "pattern": "^a|b$"}, "anchors beside |"),
    ({"type": "string", "minLength": 4, "maxLength": 3}, "maxLength is less than minLength"),
    ({"type": "string", "maxLength": 10**6}, "cannot be enforced"),
    ({"type": "array", "minItems": -1}, "must be whole numbers"),
    ({"type": "array", "prefixItems": [{}, {}], "maxItems": 1}, "schema.maxItems"),
    ({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}, "schema.minItems"),
    ({"$ref": "#/$defs/none"}, "points to nothing"),
    ({"$ref": "https://example.com/schema"}, "does not point into this schema"),
    ({"$ref": "#"}, "schema: cannot be turned into a grammar"),
    ({"anyOf": []}, "schema.anyOf"),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "nothing fits both types"),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "'pattern' is given twice"),
    ({"enum": []}, "no value of enum"),
    ({"enum": ["a"], "type": "integer"}, "no value of enum"),
    ({"enum": ["a"], "maxLength": 3}, "beside other constraints"),
    ({"properties": {"a": False}}, "schema.a: false is not a schema"),
    ({"properties": [1]}, "schema.properties: must be an object"),
    ({"properties": {"a": {}}, "required": ["b"], "additionalProperties": False}, "'b' is not among"),
]


@pytest.mark.parametrize(("schema", "words"), UNSUPPORTED, ids=[words for _, words in UNSUPPORTED])
def test_what_cannot_be_promised_is_an_error_with_its_path(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(GrammarError) as raised:
        compiled(schema)
    assert words in str(raised.value)


def test_a_schema_that_nests_for_ever_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        schema = {"type": "array", "items": schema}
    with pytest.raises(GrammarError, match="nested deeper"):
        schema_to_gbnf(schema)


def compiled(schema: dict[str, Any]) -> str:
    grammar = schema_to_gbnf(schema)
    try:
        check_gbnf(grammar)
    except GrammarError as error:
        raise GrammarError(f"schema: cannot be turned into a grammar: {error}") from error
    return grammar


def as_regex(expression: str) -> re.Pattern[str]:
    """Return a Python pattern for an expression without rule names: literals, classes, groups and repetition."""
    pieces = re.findall(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[^\s"\[]', expression)
    return re.compile("".join(_piece(piece) for piece in pieces))


def _piece(piece: str) -> str:
    if piece.startswith('"'):
        return "(?:" + re.escape(re.sub(r'\\([\\"])', r"\1", piece[1:-1])) + ")"
    return "(?:" if piece == "(" else piece


BOUND = st.one_of(st.none(), st.integers(-12_000, 12_000))


@given(BOUND, BOUND, st.lists(st.integers(-13_000, 13_000), min_size=20))
def test_whole_numbers_are_exactly_those_within_the_bounds(
    least: int | None, most: int | None, tried: list[int]
) -> None:
    assume(least is None or most is None or least <= most)
    edges = [bound + step for bound in (least, most) if bound is not None for step in (-1, 0, 1)]
    pattern = as_regex(f"( {integers(least, most)} )")
    for number in [*tried, *edges]:
        within = (least is None or least <= number) and (most is None or number <= most)
        assert bool(pattern.fullmatch(str(number))) == within, (number, pattern.pattern)


@given(
    BOUND, BOUND, st.booleans(), st.booleans(), st.integers(-13_000, 13_000), st.sampled_from(["", ".0", ".5", ".01"])
)
def test_decimals_stay_within_their_bounds(
    least: int | None, most: int | None, least_open: bool, most_open: bool, whole: int, fraction: str
) -> None:
    assume(least is None or most is None or least < most)
    pattern = as_regex(f"( {decimals(least, most, least_open=least_open, most_open=most_open)} )")
    edges = {str(bound) for bound in (least, most) if bound is not None}
    for text in {str(whole), *edges, "0", "-0"}:
        value = float(text + fraction)
        above = least is None or (value > least if least_open else value >= least)
        below = most is None or (value < most if most_open else value <= most)
        fits = bool(pattern.fullmatch(text + fraction))
        assert fits <= (above and below), text + fraction
        if above and below and text + fraction not in {"-0", "-0.0"}:
            assert fits, text + fraction


PATTERNS = [
    "^a+b?$",
    "^[^x]{2}$",
    "^(?:ab|cd)*$",
    r"^\d{3}-\w+$",
    '^["a]$',
    r"^[!-~]\.\\$",
    r"^\S\s$",
    "^[a-c-]+?$",
    "^[]]$",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_takes_the_strings_that_it_matches(pattern: str) -> None:
    grammar = as_regex(pattern_to_gbnf(pattern).replace("\\x", "\\x"))
    for length in range(5):
        for letters in itertools.product('ab1-x". \\]', repeat=min(length, 3)):
            text = "".join(letters)
            written = json.dumps(text, ensure_ascii=False)[1:-1]
            assert bool(grammar.fullmatch(written)) == bool(re.fullmatch(pattern, text)), text


EXAMPLES = {
    "date": "2024-02-28",
    "time": "23:59:59Z",
    "date-time": "2024-02-28T01:02:03.5+01:00",
    "duration": "P3DT2H",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "email": "a.b@example.org",
    "hostname": "node1.example.org",
    "ipv4": "192.168.0.255",
    "uri": "https://example.org/a?b=c#d",
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_its_example_and_nothing_else(name: str) -> None:
    grammar = as_regex(pattern_to_gbnf(FORMATS[name]))
    assert grammar.fullmatch(EXAMPLES[name])
    assert not grammar.fullmatch(EXAMPLES[name] + " ")
    assert not grammar.fullmatch("")


def test_annotations_change_nothing() -> None:
    plain = {"properties": {"a": {"type": "string"}}}
    noted = {"title": "A", "properties": {"a": {"type": "string", "description": "what", "default": "x"}}, "$id": "i"}
    assert schema_to_gbnf(noted) == schema_to_gbnf(plain)


SCHEMAS = st.recursive(
    st.sampled_from(
        [{}, {"type": "string"}, {"type": ["integer", "null"]}, {"enum": ["a", 1, None]}, {"const": {"k": []}}]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3)),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda properties, required, extra: {
                "type": "object",
                "properties": properties,
                "required": list(properties)[:required],
                "additionalProperties": extra,
            },
            st.dictionaries(st.sampled_from(["a", "ab", "b", "é", ""]), inner, max_size=4),
            st.integers(0, 4),
            st.sampled_from([True, False, {"type": "boolean"}]),
        ),
    ),
    max_leaves=8,
)


@given(SCHEMAS)
def test_every_supported_schema_gives_a_sound_grammar(schema: dict[str, Any]) -> None:
    compiled(schema)
