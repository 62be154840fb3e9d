"""The router's choices on their way up."""

from __future__ import annotations

from pathlib import Path

from optaned.api import LoadRequest, RouterChoice, Row
from optaned.engine.messages import Choices, Failed, Text, Trace
from optaned.engine.tracing import Tracing, by_token
from optaned_echo.model import EchoModel
from optaned_echo.options import EchoOptions


def model() -> EchoModel:
    request = LoadRequest(files=(Path("none"),), context=6000, slots=1, threads=1)
    return EchoModel(request, EchoOptions(layers=3, experts=4, experts_used=2))


def test_choices_come_token_after_token_whichever_way_the_library_lists_them() -> None:
    layer_by_layer = [RouterChoice(layer, (token,)) for layer in (0, 1) for token in (7, 8)]
    assert by_token(layer_by_layer) == [[(0, (7,)), (1, (7,))], [(0, (8,)), (1, (8,))]]
    token_by_token = [RouterChoice(layer, (token,)) for token in (7, 8) for layer in (0, 1)]
    assert by_token(token_by_token) == by_token(layer_by_layer)


def test_of_a_prompt_only_whole_tokens_are_told() -> None:
    choices = [RouterChoice(0, (n,)) for n in (1, 2, 3)] + [RouterChoice(1, (9,))]
    assert by_token(choices) == [[(0, (3,)), (1, (9,))]]
    assert by_token([]) == []


def test_a_trace_is_switched_on_and_off_and_its_frames_hold_whole_tokens() -> None:
    echo = model()
    tracing = Tracing(echo)
    assert tracing.switch(Trace("t", on=True)) == Text("t", "tracing")
    echo.decode([Row(token % 256, token, 0, logits=False) for token in range(3000)], should_abort=lambda: False)
    frames = tracing.take()
    assert [type(frame) for frame in frames] == [Choices] * 3
    assert all(len(frame.choices) % 3 == 0 for frame in frames if isinstance(frame, Choices))
    assert tracing.take() == []
    tracing.switch(Trace("t", on=False))
    echo.decode([Row(1, 3000, 0, logits=True)])
    assert (tracing.on, tracing.take()) == (False, [])


def test_a_router_that_nobody_watches_says_so() -> None:
    tracing = Tracing(model(), watched=False)
    answer = tracing.switch(Trace("t", on=True))
    assert isinstance(answer, Failed)
    assert (answer.code, tracing.on) == ("trace_unsupported", False)
