"""The parts that need no process: events cut anywhere, words about progress, arithmetic of answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.cli.ctl.answer import Answer
from optaned.cli.ctl.events import EventParser
from optaned.cli.ctl.progress import describe

WIRE = "data: é🙂\r\n\r\n: ping\n\nevent: x\ndata: two\ndata:lines\n\ndata: [DONE]\n\ndata: unfinished\n".encode()
EVENTS = ["é🙂", "two\nlines", "[DONE]"]


@given(st.lists(st.integers(0, len(WIRE)), max_size=10))
def test_events_cut_anywhere_are_the_same_events(cuts: list[int]) -> None:
    places = sorted({0, len(WIRE), *cuts})
    parser = EventParser()
    pieces = [WIRE[start:end] for start, end in zip(places, places[1:], strict=False)]  # noqa: RUF007
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS


BUSY = {"state": "decode"}
READING = {"state": "prefill", "prefilled_tokens": 1, "prompt_tokens": 9}


@pytest.mark.parametrize(
    "changes, slots, text",
    [
        ({}, [], "waiting for the next token"),
        ({}, [READING, {"state": "idle"}], "reading the prompt: 1 of 9 tokens"),
        ({}, [READING, BUSY], "reading a prompt: 1 of 9 tokens"),
        ({"waiting": 2}, [BUSY, BUSY], "queued: all 2 slots are busy, 2 wait"),
        ({"thermal": {"paused": True, "reason": "hot"}}, [READING], "paused: hot"),
        ({"state": "restarting", "detail": "it died"}, [], "restarting tiny (it died)"),
    ],
)
def test_silence_is_explained(changes, slots, text: str, view) -> None:
    assert describe(view(**{"state": "ready", **changes}), slots) == text


def test_speed_is_the_daemons_own_figure_or_else_what_was_seen() -> None:
    answer = Answer(started_s=0.0)
    assert answer.tokens_per_s is None
    for second in (1.0, 2.0, 3.0):
        answer.add({"choices": [{"delta": {"content": "x"}}]}, second)
    answer.add({"choices": [], "usage": {"completion_tokens": 5}}, 3.0)
    assert answer.tokens_per_s == 2.0
    answer.add({"choices": [{"delta": {}, "finish_reason": "length"}], "timings": {"predicted_per_second": 7.5}}, 3.0)
    assert answer.summary == "5 tokens, 7.5 tokens/s (stopped at the token limit)"
