"""Grammars and schemas in the library's own hands: what they let through, and what a constrained answer looks like."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from optaned.api import GrammarError, Model, Row, Sampling, Vocabulary
from optaned_llamacpp.schema import schema_to_gbnf

pytestmark = pytest.mark.model

PERSON = {
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog", None]},
        "home": {"$ref": "#/$defs/Place"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "kind", "home", "tags"],
    "additionalProperties": False,
}
NODE = {
    "properties": {"v": {"type": "number"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["v", "next"],
}
TREE = {"$defs": {"node": NODE}, "$ref": "#/$defs/node"}
TUPLE = {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "null"}}
EXTRA = {"properties": {"ab": {"type": "string"}, "ac": {}}, "additionalProperties": {"type": "integer"}}
BOTH = {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"const": 1}}}]}
LONG = {"type": "string", "minLength": 1001, "maxLength": 2003}

FITS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({}, [{}, {"a": [1, {"b": None}]}], [[], "x", 1]),
    (
        PERSON,
        [{"name": "Tom", "age": 150, "kind": None, "home": {"city": "é\n"}, "tags": ["a", "b"]}],
        [
            {"name": "Tom", "age": 151, "kind": None, "home": {"city": ""}, "tags": ["a"]},
            {"name": "Tom", "age": 15, "kind": "cow", "home": {"city": ""}, "tags": ["a"]},
            {"name": "Tom", "age": 15, "kind": "cat", "home": {}, "tags": ["a"]},
            {"name": "Tom", "age": 15, "kind": "cat", "home": {"city": ""}, "tags": []},
            {"name": "Tom", "age": 15, "kind": "cat", "home": {"city": ""}, "tags": ["a"], "x": 1},
            {"name": "1234567890123", "age": 15, "kind": "cat", "home": {"city": ""}, "tags": ["a"]},
        ],
    ),
    (TREE, [{"v": -1.5e3, "next": {"v": 0, "next": None}}], [{"v": 1}, {"v": 1, "next": {}}]),
    (EXTRA, [{}, {"ab": "x"}, {"ac": []}, {"ab": "x", "a": 1, "abc": 2, "": 3}, {"z": 1}], [{"ab": 1}, {"z": "x"}]),
    (BOTH, [{"a": 1}, {"a": 1, "b": 1}], [{"b": 1}, {"a": 1, "b": 2}]),
    (LONG, ["x" * 1001, "x" * 2003], ["x" * 1000, "x" * 2004]),
    ({"type": ["string", "null"], "maxLength": 2}, ["ab", None], ["abc", 1]),
    (TUPLE, [["a", 1], ["a", 1, None]], [["a"], [1, 1]]),
    ({"type": "string", "format": "date"}, ["2024-02-03"], ["2024-13-03", "yesterday"]),
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}}, [{"a": 1}, {"b": 2}], [{}]),
]  # fmt: skip


@pytest.fixture(scope="module")
def fits(tiny: Model) -> Callable[[str, str], bool]:
    """Return a function that walks a text through a grammar, token by token, as the sampler would."""

    def walk(grammar: str, text: str) -> bool:
        tokens = tiny.vocabulary.tokenize(text, special=False, bos=False)
        end = tiny.vocabulary.info.eos
        assert end is not None
        try:
            tiny.sampler(Sampling(grammar=grammar), [*tokens, end], answered=len(tokens) + 1).close()  # type: ignore[call-arg]
        except GrammarError:
            return False
        return True

    return walk


@pytest.mark.parametrize(("schema", "good", "bad"), FITS, ids=range(len(FITS)))
def test_a_schema_lets_through_what_fits_and_nothing_else(
    fits: Callable[[str, str], bool], schema: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    grammar = schema_to_gbnf(schema)
    for value in good:
        for layout in ({"separators": (",", ":")}, {}, {"indent": 2}, {"ensure_ascii": False}):
            assert fits(grammar, json.dumps(value, **layout)), value  # type: ignore[arg-type]
    for value in bad:
        assert not fits(grammar, json.dumps(value)), value


def test_the_empty_answer_and_the_half_answer_do_not_fit(fits: Callable[[str, str], bool]) -> None:
    grammar = schema_to_gbnf({})
    assert not fits(grammar, "")
    assert not fits(grammar, '{"a": ')


@pytest.fixture
def ready(smol: Model) -> Iterator[Callable[..., str]]:
    """Return a function that answers under a grammar and returns the text."""
    prompt = smol.vocabulary.tokenize("Describe your pet as JSON:\n", special=False, bos=False)

    def answer(sampling: Sampling, most: int = 120) -> str:
        smol.cut(0, 0)
        smol.decode([Row(token, i, 0, logits=i == len(prompt) - 1) for i, token in enumerate(prompt)])
        sampler = smol.sampler(sampling, prompt)
        tokens: list[int] = []
        while len(tokens) < most:
            token = sampler.sample(0, position=len(tokens), top_logprobs=None).token
            if smol.vocabulary.is_end(token):
                break
            tokens.append(token)
            smol.decode([Row(token, len(prompt) + len(tokens) - 1, 0, logits=True)])
        sampler.close()
        return b"".join(map(smol.vocabulary.piece, tokens)).decode()

    yield answer
    smol.cut(0, 0)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0),
        Sampling(seed=1),
        Sampling(temperature=1.2, top_k=0, typical_p=0.9, seed=2),
        Sampling(mirostat=2, seed=3),
        Sampling(temperature=0, repeat_penalty=1.3),
    ],
    ids=["greedy", "default", "typical", "mirostat", "penalty"],
)
def test_every_way_of_choosing_obeys_a_schema(ready: Callable[..., str], sampling: Sampling) -> None:
    grammar = schema_to_gbnf(PERSON)
    text = ready(Sampling(**{f: getattr(sampling, f) for f in sampling.__slots__ if f != "grammar"}, grammar=grammar))
    answer = json.loads(text)
    assert list(answer) == ["name", "age", "kind", "home", "tags"]
    assert 0 <= answer["age"] <= 150


def test_an_answer_ends_where_its_grammar_ends(ready: Callable[..., str]) -> None:
    assert ready(Sampling(temperature=0, grammar='root ::= "yes" | "no"')) in {"yes", "no"}


def test_a_grammar_that_no_token_can_follow_ends_the_answer(ready: Callable[..., str]) -> None:
    assert ready(Sampling(temperature=0, grammar='root ::= "a" <[5]>')) == "a"  # token 5 has no text of its own
    assert ready(Sampling(grammar='root ::= "b" <[5]>')) == "b"
    assert ready(Sampling(grammar='root ::= "" | "" ""')) == ""


def test_a_long_answer_is_not_slowed_to_the_full_mask(ready: Callable[..., str]) -> None:
    free = ready(Sampling(temperature=0), most=20)
    assert ready(Sampling(temperature=0, grammar="root ::= .*"), most=20) == free


@pytest.mark.parametrize("grammar", ["root ::= missing", 'root ::= root "a"', 'root ::= "a', 'root ::= ("a" | )*'])
def test_a_bad_grammar_is_an_error_and_the_process_lives(
    tiny_vocabulary: Vocabulary, tiny: Model, grammar: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GrammarError):
        tiny_vocabulary.check_grammar(grammar)
    with pytest.raises(GrammarError):
        tiny.sampler(Sampling(grammar=grammar), ())
    assert capfd.readouterr().err == ""


def test_an_unknown_token_in_a_grammar_is_an_error(tiny_vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError, match="cannot compile"):
        tiny_vocabulary.check_grammar("root ::= <no such token>")


def test_the_vocabulary_makes_grammars_of_schemas(tiny_vocabulary: Vocabulary) -> None:
    tiny_vocabulary.check_grammar(tiny_vocabulary.schema_grammar(PERSON))
    with pytest.raises(GrammarError, match="cannot be turned into a grammar"):
        tiny_vocabulary.schema_grammar({"$ref": "#"})


def test_a_grammar_resumes_behind_the_answer_so_far(smol: Model) -> None:
    vocabulary = smol.vocabulary
    prompt = vocabulary.tokenize("Count: ", special=False, bos=False)
    begun = vocabulary.tokenize("12", special=False, bos=False)
    history = [*prompt, *begun]
    smol.cut(0, 0)
    smol.decode([Row(token, i, 0, logits=i == len(history) - 1) for i, token in enumerate(history)])
    sampling = Sampling(temperature=0, grammar='root ::= "12!"')
    sampler = smol.sampler(sampling, history, answered=len(begun))  # type: ignore[call-arg]
    assert vocabulary.piece(sampler.sample(0, position=2, top_logprobs=None).token) == b"!"
    sampler.close()
    smol.cut(0, 0)
