"""The echo backend by itself: what it says, what can be made to happen, and what it refuses like a real model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import optaned_echo
from optaned.api import (
    DecodeAborted,
    DecodeFailed,
    Embeds,
    Env,
    GrammarError,
    LoadRequest,
    Mapped,
    Row,
    Sampling,
    Tapped,
    UnavailableError,
)
from optaned_echo.answers import script_of
from optaned_echo.backend import EchoBackend
from optaned_echo.directives import Event, Script, parse
from optaned_echo.model import EchoModel
from optaned_echo.options import EchoOptions
from optaned_echo.vocabulary import EchoVocabulary

REQUEST = LoadRequest(files=(Path("none"),), context=1000, slots=2, threads=1)
VOCABULARY = EchoVocabulary(4096)


def model(**options: Any) -> EchoModel:
    return EchoModel(REQUEST, EchoOptions(**options))


def feed(echo: EchoModel, tokens: list[int], *, slot: int = 0, at: int = 0) -> None:
    rows = [Row(token, at + i, slot, i == len(tokens) - 1) for i, token in enumerate(tokens)]
    echo.decode(rows, should_abort=lambda: False)


def say(echo: EchoModel, prompt: list[int], *, slot: int = 0, sampling: Sampling | None = None) -> str:
    """Answer a prompt the way an engine does."""
    sampler = echo.sampler(sampling or Sampling(), prompt)
    feed(echo, prompt, slot=slot)
    said = b""
    for position in range(1000):
        token = sampler.sample(0, position=position, top_logprobs=None).token
        if VOCABULARY.is_end(token):
            return said.decode()
        said += VOCABULARY.piece(token)
        echo.decode([Row(token, len(prompt) + position, slot, logits=True)])
    raise AssertionError("no end")


def chat(*turns: tuple[str, str]) -> list[int]:
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    return VOCABULARY.tokenize(text + "<|im_start|>assistant\n", special=True, bos=False)


def test_the_plugin_declares_its_backend() -> None:
    (driver,) = optaned_echo.optaned_backends()
    assert driver.name == "echo"
    assert isinstance(driver.open("echo", driver.options(), Env()), EchoBackend)


# ---- vocabulary ------------------------------------------------------------------------------------------------------


@given(st.text())
def test_any_text_survives_tokens(text: str) -> None:
    tokens = VOCABULARY.tokenize(text, special=False, bos=True)
    assert b"".join(map(VOCABULARY.piece, tokens)).decode() == text.encode(errors="replace").decode()


def test_control_tokens_are_read_only_in_markup() -> None:
    assert VOCABULARY.tokenize("a<|im_end|>", special=True, bos=False) == [97, 259]
    assert 259 not in VOCABULARY.tokenize("a<|im_end|>", special=False, bos=False)
    assert (VOCABULARY.piece(259), VOCABULARY.piece(259, special=True)) == (b"", b"<|im_end|>")


def test_a_grammar_needs_a_root() -> None:
    VOCABULARY.check_grammar("# a comment\nroot ::= x\nx ::= [a-z]")
    with pytest.raises(GrammarError, match="root"):
        VOCABULARY.check_grammar("x ::= y")
    with pytest.raises(GrammarError, match="unknown type"):
        VOCABULARY.schema_grammar({"type": "colour"})


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_it_answers_with_the_prompt_or_with_the_last_user_turn() -> None:
    assert say(model(), list("grüß".encode())) == "grüß"
    turns = chat(("system", "be nice"), ("user", "first"), ("assistant", "first"), ("user", "wörld"))
    assert say(model(), turns) == "wörld"


@pytest.mark.parametrize(
    "message, script",
    [
        ("plain [[text]]", Script("plain [[text]]")),
        ("[[say hello]]", Script("hello")),
        ("[[tokens 30]]", Script("abcdefghijklmnopqrstuvwxyzabcd")),
        ("a[[crash 6 at 3]]b", Script("ab", (Event("crash", 3, 6.0),))),
        ("[[stall 2.5s at prefill]]x", Script("x", (Event("stall", None, 2.5),))),
        ("[[exit 3 at 0]][[fail at 1]]x", Script("x", (Event("exit", 0, 3.0), Event("fail", 1)))),
        ("[[show sampling]]", Script("", show_sampling=True)),
    ],
)
def test_directives_steer_an_answer_and_are_not_echoed(message: str, script: Script) -> None:
    assert parse(message) == script
    assert script_of(list(message.encode())) == script


@given(st.text())
def test_no_text_breaks_the_directives(text: str) -> None:
    parse(text)


def test_sampling_can_be_shown() -> None:
    shown = json.loads(say(model(), chat(("user", "[[show sampling]]")), sampling=Sampling(seed=7, top_k=3)))
    assert (shown["seed"], shown["top_k"]) == (7, 3)


@pytest.mark.parametrize(
    "schema, document",
    [
        ({}, {}),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]},
            {"a": 0},
        ),
        ({"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 2}, ["x", "x"]),
        ({"$defs": {"n": {"const": 5}}, "anyOf": [{"$ref": "#/$defs/n"}]}, 5),
    ],
)
def test_with_a_schema_it_answers_the_smallest_document(schema: dict[str, Any], document: object) -> None:
    grammar = VOCABULARY.schema_grammar(schema)
    assert json.loads(say(model(), [97], sampling=Sampling(grammar=grammar))) == document


def test_the_answer_to_a_grammar_can_be_given() -> None:
    sampling = Sampling(grammar="root ::= x")
    assert say(model(grammar_answer="yes"), [97], sampling=sampling) == "yes"
    assert say(model(), [97], sampling=sampling) == "{}"
    with pytest.raises(GrammarError):
        model().sampler(Sampling(grammar="none"), [97])


def test_logprobs_are_powers_of_one_half() -> None:
    echo = model()
    sampler = echo.sampler(Sampling(), [97])
    feed(echo, [97])
    found = sampler.sample(0, position=0, top_logprobs=2).logprob
    assert found is not None
    assert (found.token, found.logprob) == (97, math.log(0.5))
    assert found.top == ((97, math.log(0.5)), (98, math.log(0.25)))


# ---- what a real model would get wrong -------------------------------------------------------------------------------


def test_a_gap_or_a_full_slot_is_refused_and_nothing_is_evaluated() -> None:
    echo = model()
    feed(echo, [1, 2, 3])
    with pytest.raises(DecodeFailed, match="position 5 cannot follow"):
        echo.decode([Row(4, 5, 0, logits=True)])
    with pytest.raises(DecodeFailed, match="full"):
        feed(echo, [1] * 1001, slot=1)
    with pytest.raises(DecodeFailed, match="vocabulary"):
        feed(echo, [999], slot=1)
    feed(echo, [4], at=3)


def test_a_wrong_state_is_noticed_at_the_first_token() -> None:
    echo = model()
    sampler = echo.sampler(Sampling(), [1, 2, 3])
    feed(echo, [1, 9, 3])
    with pytest.raises(RuntimeError, match="another state"):
        sampler.sample(0, position=0, top_logprobs=None)


@pytest.mark.parametrize("can_cut", [True, False])
def test_only_a_cutting_model_forgets_a_tail(*, can_cut: bool) -> None:
    echo = model(can_cut=can_cut)
    feed(echo, [1, 2, 3])
    assert echo.info.can_cut is can_cut
    assert echo.cut(0, 3)
    assert echo.cut(0, 2) is can_cut
    assert echo.cut(0, 0)
    feed(echo, [5])


def test_an_aborted_prefill_evaluated_nothing() -> None:
    answers = iter([False, True])
    echo = model(prefill_delay_s_per_token=1.0)
    with pytest.raises(DecodeAborted):
        echo.decode([Row(1, 0, 0, logits=True)], should_abort=lambda: next(answers))
    quick = model()
    feed(quick, [1])


@pytest.mark.parametrize("at", ["prefill", "1"])
def test_a_scripted_failure_hits_its_own_slot(at: str) -> None:
    echo = model()
    feed(echo, [7], slot=1)
    with pytest.raises(DecodeFailed):
        say(echo, list(f"abc[[fail at {at}]]".encode()))
    echo.decode([Row(8, 1, 1, logits=True)])
    echo.cut(0, 0)
    assert say(echo, list(b"abc")) == "abc"


def test_options_script_every_answer() -> None:
    options = EchoOptions.model_validate_json('{"script": [{"do": "fail", "at": 1}]}')
    with pytest.raises(DecodeFailed):
        say(EchoModel(REQUEST, options), list(b"abc"))


# ---- the rest of a model ---------------------------------------------------------------------------------------------


def test_embeddings_are_of_length_one_and_depend_on_the_text() -> None:
    echo = model(embedding_size=8)
    assert isinstance(echo, Embeds)
    one, again, other = echo.embed(0, b"one"), echo.embed(1, b"one"), echo.embed(0, b"other")
    assert one == again != other
    assert (len(one), math.hypot(*one)) == (8, pytest.approx(1.0))
    with pytest.raises(DecodeAborted):
        echo.embed(0, b"one", should_abort=lambda: True)


def test_router_choices_are_kept_while_traced_and_taken_once() -> None:
    echo = model(layers=2, experts=4, experts_used=2)
    assert isinstance(echo, Tapped)
    feed(echo, [1, 2])
    assert echo.take_choices() == ()
    echo.trace(on=True)
    feed(echo, [1, 2, 3], at=2)
    choices = echo.take_choices()
    assert [choice.layer for choice in choices] == [0, 1] * 3
    assert all(len(set(choice.experts)) == 2 and max(choice.experts) < 4 for choice in choices)
    assert echo.take_choices() == ()
    assert model().take_choices() == ()


def test_decoding_and_prefill_are_counted_apart_and_once() -> None:
    echo = model(layers=2, experts=4, experts_used=2)
    feed(echo, [1, 2, 3])
    echo.decode([Row(4, 3, 0, logits=True)])
    counts = echo.take_counts()
    assert (counts.tokens, counts.prefill_tokens) == (1, 3)
    assert (counts.decode.shape, counts.decode.sum(), counts.prefill.sum()) == ((2, 4), 4, 12)
    assert echo.take_counts().decode.sum() == 0


def test_files_that_are_there_are_mapped_and_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(range(256)) * 64)
    echo = EchoModel(LoadRequest((file, tmp_path / "none"), context=10, slots=1, threads=1), EchoOptions())
    assert isinstance(echo, Mapped)
    assert echo.mapped_files == (file,)
    feed(echo, [1])
    with file.open("r+b") as opened:
        opened.write(b"x")
    with pytest.raises(RuntimeError, match="its bytes changed while it was mapped"):
        feed(echo, [2], at=1)
    echo.close()
    assert echo.mapped_files == ()


def load(progress: Callable[[float], bool], **options: Any) -> EchoModel:
    return EchoBackend("echo", EchoOptions(**options), Env()).load(REQUEST, progress)


def test_loading_tells_its_progress_and_can_be_given_up_or_refused() -> None:
    told: list[float] = []
    assert load(lambda fraction: told.append(fraction) is None).info.context == 1000
    assert (told[0], told[-1], told) == (0.0, 1.0, sorted(told))
    with pytest.raises(UnavailableError, match="given up"):
        load(lambda _: False)
    with pytest.raises(UnavailableError, match="too old"):
        load(lambda _: True, load_error="too old")
