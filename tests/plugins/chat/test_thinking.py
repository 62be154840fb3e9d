from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned_chat.thinking import ThinkParser, ends_inside


def parse(*pieces: str, opened: bool = False) -> tuple[str, str]:
    parser = ThinkParser(opened=opened)
    deltas = [parser.feed(piece) for piece in pieces] + [parser.finish()]
    return "".join(delta.reasoning for delta in deltas), "".join(delta.content for delta in deltas)


@pytest.mark.parametrize(
    "text, reasoning, content",
    [
        ("<think>Hm.</think>Yes.", "Hm.", "Yes."),
        ("<think>\nHm.\n\nOh.\n</think>\n\nYes.\n", "Hm.\n\nOh.", "Yes.\n"),
        ("\n <think>Hm.</think>\r\nYes.", "Hm.", "Yes."),
        ("<think>\n\n</think>\n\nYes.", "", "Yes."),
        ("Yes.", "", "Yes."),
        ("  Yes.", "", "  Yes."),
        ("", "", ""),
        ("<think>never closed </thi", "never closed </thi", ""),
        ("<thi", "", "<thi"),
        ("The tag <think> opens</think> it.", "", "The tag <think> opens</think> it."),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("<think>a < b </ think></think>c", "a < b </ think>", "c"),
    ],
)
def test_a_section_at_the_start_is_reasoning(text: str, reasoning: str, content: str) -> None:
    assert parse(text) == (reasoning, content)


@pytest.mark.parametrize(
    "text, reasoning, content",
    [
        ("Hm.</think>\n\nYes.", "Hm.", "Yes."),
        ("\nHm. Yes.", "Hm. Yes.", ""),
        ("<think>again</think>Yes.", "again", "Yes."),
        ("<th", "<th", ""),
        ("</think>Yes.", "", "Yes."),
    ],
)
def test_an_answer_can_begin_inside_the_section_that_its_prompt_opened(text: str, reasoning: str, content: str) -> None:
    assert parse(text, opened=True) == (reasoning, content)


PARTS = st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "think>", "\n", " ", "a", "é🙂"]), max_size=12)


@given(PARTS, st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_any_cut_of_the_stream_gives_the_same_result(parts: list[str], cuts: list[int], opened: bool) -> None:
    text = "".join(parts)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    assert parse(*pieces, opened=opened) == parse(text, opened=opened)


@given(PARTS)
def test_content_streams_without_delay_once_it_has_begun(parts: list[str]) -> None:
    parser = ThinkParser(opened=False)
    parser.feed("<think>x</think>y")
    for part in parts:
        assert parser.feed(part).content == part


TURN_END = "<|im_end|>\n<|im_start|>assistant"


@pytest.mark.parametrize(
    "rendered, inside",
    [
        ("…<|im_end|>\n<|im_start|>assistant\n<think>\n", True),
        ("…<|im_end|>\n<|im_start|>assistant\n", False),
        ("…<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("user\nhi<|im_end|>\n<|im_start|>assistant\n<think>I was about to", True),
        ("user\nhi<|im_end|>\n<|im_start|>assistant\n<think>done</think>So", False),
    ],
)
def test_a_prompt_ends_inside_a_section_only_if_the_assistant_opened_it(rendered: str, inside: bool) -> None:
    assert ends_inside(rendered, TURN_END) is inside
