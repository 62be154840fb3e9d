"""The scheduler over the echo model, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optaned.api import DecodeAborted, FinishReason, LoadRequest, Row, Sampling
from optaned.engine.messages import (
    Embedding,
    EmbedTokens,
    Failed,
    Finished,
    FromWorker,
    Generate,
    Pieces,
    Prefilled,
    Slots,
    Started,
)
from optaned.engine.scheduler import Scheduler
from optaned_echo.model import EchoModel
from optaned_echo.options import EchoOptions


class WatchedModel(EchoModel):
    """An echo that remembers its calls and refuses what must never happen: chunk and decode rows in one call."""

    def __init__(self, *, slots: int = 2, context: int = 200, batch: int = 8, can_cut: bool = True) -> None:
        request = LoadRequest(files=(Path("none"),), context=context, slots=slots, threads=1, batch=batch)
        super().__init__(request, EchoOptions(can_cut=can_cut))
        self.calls: list[tuple[str, list[Row]]] = []

    def decode(self, rows: Sequence[Row], *, should_abort: Callable[[], bool] | None = None) -> None:
        slots = Counter(row.slot for row in rows)
        if should_abort is None:
            assert max(slots.values()) == 1, "a decode call has one row a slot"
            assert all(row.logits for row in rows)
        else:
            assert len(slots) == 1, "a prefill call is of one request"
        self.calls.append(("decode" if should_abort is None else "prefill", list(rows)))
        super().decode(rows, should_abort=should_abort)


def generate(name: str, text: str, **changes: object) -> Generate:
    request = {"id": name, "prompt": tuple(text.encode()), "sampling": Sampling(), "max_tokens": 50, **changes}
    return Generate(**request)  # type: ignore[arg-type]


class Told:
    """What a scheduler said, sorted by request."""

    def __init__(self) -> None:
        self.messages: list[FromWorker] = []

    def drain(self, scheduler: Scheduler, *, steps: int = 10_000) -> Told:
        for _ in range(steps):
            if not scheduler.busy:
                return self
            self.messages += scheduler.step()
        raise AssertionError(f"still busy after {steps} steps")

    def text(self, name: str) -> str:
        return "".join(
            piece.text for m in self.messages if isinstance(m, Pieces) for piece in m.pieces if piece.id == name
        )

    def tokens(self, name: str) -> bytes:
        found = [piece.tokens for m in self.messages if isinstance(m, Pieces) for piece in m.pieces if piece.id == name]
        return bytes(token for tokens in found for token in tokens)

    def end(self, name: str) -> Finished | Failed | Embedding:
        (end,) = (m for m in self.messages if isinstance(m, Finished | Failed | Embedding) and m.id == name)
        return end

    def finished(self, name: str) -> Finished:
        end = self.end(name)
        assert isinstance(end, Finished)
        return end

    def of(self, kind: type) -> list[FromWorker]:
        return [m for m in self.messages if isinstance(m, kind)]


def test_an_answer_is_the_prompt() -> None:
    scheduler = Scheduler(WatchedModel())
    scheduler.submit(generate("a", "grüß Gott"))
    told = Told().drain(scheduler)
    assert told.text("a") == "grüß Gott"
    assert told.tokens("a") == "grüß Gott".encode()
    end = told.finished("a")
    assert end.reason is FinishReason.STOP
    assert (end.usage.prompt_tokens, end.usage.completion_tokens, end.usage.cached_tokens) == (11, 11, 0)


def test_messages_come_in_the_order_started_prefilled_pieces_finished() -> None:
    scheduler = Scheduler(WatchedModel(batch=2))
    scheduler.submit(generate("a", "abc"))
    told = Told().drain(scheduler)
    kinds = [type(m).__name__ for m in told.messages if not isinstance(m, Slots)]
    assert kinds == ["Started", "Prefilled", "Prefilled", "Pieces", "Pieces", "Pieces", "Finished"]
    assert [(m.done, m.total) for m in told.messages if isinstance(m, Prefilled)] == [(2, 3), (3, 3)]


@pytest.mark.parametrize("max_tokens", [0, 1, 3])
def test_max_tokens_ends_an_answer_with_length(max_tokens: int) -> None:
    scheduler = Scheduler(WatchedModel())
    scheduler.submit(generate("a", "abcdef", max_tokens=max_tokens))
    told = Told().drain(scheduler)
    assert told.text("a") == "abcdef"[:max_tokens]
    assert told.finished("a").reason is FinishReason.LENGTH
    assert told.finished("a").usage.completion_tokens == max_tokens


def test_a_character_that_length_cuts_is_replaced_at_the_end() -> None:
    scheduler = Scheduler(WatchedModel())
    scheduler.submit(generate("a", "x€", max_tokens=3))
    assert Told().drain(scheduler).text("a") == "x\ufffd"


def test_a_stop_string_ends_an_answer_and_is_never_sent() -> None:
    scheduler = Scheduler(WatchedModel())
    scheduler.submit(generate("a", "one two three", stop=("two", "three")))
    told = Told().drain(scheduler)
    assert told.text("a") == "one "
    assert (told.finished("a").reason, told.finished("a").stop) == (FinishReason.STOP, "two")


def test_held_back_text_comes_before_the_end() -> None:
    scheduler = Scheduler(WatchedModel())
    scheduler.submit(generate("a", "one tw", stop=("two",)))
    told = Told().drain(scheduler)
    assert told.text("a") == "one tw"
    assert told.finished("a").stop is None


def test_all_decoding_answers_share_one_call_and_one_frame() -> None:
    model = WatchedModel(slots=3)
    scheduler = Scheduler(model)
    for name in "abc":
        scheduler.submit(generate(name, "hello " + name))
    told = Told().drain(scheduler)
    assert [told.text(name) for name in "abc"] == ["hello a", "hello b", "hello c"]
    widths = {len(rows) for kind, rows in model.calls if kind == "decode"}
    assert max(widths) == 3
    assert max(len(m.pieces) for m in told.messages if isinstance(m, Pieces)) == 3


def test_a_prefill_takes_turns_with_decoding() -> None:
    model = WatchedModel(batch=4)
    scheduler = Scheduler(model)
    scheduler.submit(generate("a", "[[tokens 30]]"))
    told = Told()
    while not told.of(Pieces):
        told.messages += scheduler.step()
    model.calls.clear()
    scheduler.submit(generate("b", "x" * 40))
    told.drain(scheduler)
    kinds = [kind for kind, _ in model.calls]
    first, last = kinds.index("prefill"), len(kinds) - 1 - kinds[::-1].index("prefill")
    assert kinds[first : last + 1] == ["prefill", "decode"] * 9 + ["prefill"]
    assert told.text("b") == "x" * 40


def test_requests_wait_in_order_for_a_slot() -> None:
    scheduler = Scheduler(WatchedModel(slots=1))
    for name in "abcd":
        scheduler.submit(generate(name, name))
    told = Told().drain(scheduler)
    assert [m.id for m in told.messages if isinstance(m, Started)] == list("abcd")


def test_a_prompt_that_cannot_fit_is_refused_with_both_numbers() -> None:
    scheduler = Scheduler(WatchedModel(context=20))
    scheduler.submit(generate("a", "x" * 15, max_tokens=6))
    scheduler.submit(generate("b", ""))
    told = Told().drain(scheduler)
    assert told.end("a") == Failed(
        "a", "context_length_exceeded", "15 prompt tokens and 6 to generate; this model holds 20 tokens"
    )
    assert told.end("b") == Failed("b", "prompt_empty", "the prompt has no tokens")


def test_a_broken_grammar_fails_its_request_alone() -> None:
    scheduler = Scheduler(WatchedModel())
    scheduler.submit(generate("a", "x", sampling=Sampling(grammar="no rule")))
    scheduler.submit(generate("b", "y"))
    told = Told().drain(scheduler)
    end = told.end("a")
    assert isinstance(end, Failed)
    assert end.code == "grammar_invalid"
    assert told.text("b") == "y"


# ---- prefix reuse ----------------------------------------------------------------------------------------------------


def turns(*texts: str, can_cut: bool = True, slots: int = 1) -> tuple[Told, WatchedModel]:
    """Answer prompts one after the other."""
    model = WatchedModel(can_cut=can_cut, slots=slots)
    scheduler = Scheduler(model)
    told = Told()
    for number, text in enumerate(texts):
        scheduler.submit(generate(str(number), text))
        told.drain(scheduler)
    return told, model


def cached(told: Told) -> list[int]:
    return [m.cached_tokens for m in told.messages if isinstance(m, Started)]


def test_a_common_prefix_is_not_computed_again() -> None:
    told, model = turns("hello world", "hello there")
    assert cached(told) == [0, 6]
    assert told.text("1") == "hello there"
    assert [row.position for row in model.calls[-12][1]] == [6, 7, 8, 9, 10]


def test_the_same_prompt_evaluates_its_last_token_again() -> None:
    told, _ = turns("hello", "hello")
    assert cached(told) == [0, 4]
    assert told.text("1") == "hello"


def test_a_model_that_cannot_cut_reuses_only_its_whole_history() -> None:
    # The slot holds the prompt and all of the answer but its last token.
    told, _ = turns("abc", "abcabcd", "abcX", can_cut=False)
    assert cached(told) == [0, 6, 0]
    assert [told.text(name) for name in "012"] == ["abc", "abcabcd", "abcX"]


def test_the_slot_with_the_longest_common_prefix_is_chosen() -> None:
    model = WatchedModel(slots=2)
    scheduler = Scheduler(model)
    scheduler.submit(generate("a", "apples are red"))
    scheduler.submit(generate("b", "bananas are yellow"))
    told = Told().drain(scheduler)
    scheduler.submit(generate("c", "bananas are blue"))
    told.drain(scheduler)
    slots = {m.id: m.slot for m in told.messages if isinstance(m, Started)}
    assert slots["c"] == slots["b"]
    assert cached(told) == [0, 0, 12]


def test_without_a_common_prefix_the_least_recently_used_slot_is_taken() -> None:
    told, _ = turns("aa", "bb", "cc", "bbx", slots=2)
    assert [m.slot for m in told.messages if isinstance(m, Started)] == [0, 1, 0, 1]


# ---- cancelling and failing ------------------------------------------------------------------------------------------


def test_cancelling_while_decoding_ends_at_once() -> None:
    scheduler = Scheduler(WatchedModel())
    scheduler.submit(generate("a", "[[tokens 40]]"))
    told = Told()
    while len(told.of(Pieces)) < 3:
        told.messages += scheduler.step()
    scheduler.cancel("a")
    told.drain(scheduler)
    assert told.text("a") == "abc"
    assert told.finished("a").reason is FinishReason.CANCELLED
    assert told.finished("a").usage.completion_tokens == 3


def test_cancelling_a_waiting_request_ends_it_and_unknown_ids_are_ignored() -> None:
    scheduler = Scheduler(WatchedModel(slots=1))
    scheduler.submit(generate("a", "aa"))
    scheduler.submit(generate("b", "bb"))
    scheduler.cancel("b")
    scheduler.cancel("nobody")
    told = Told().drain(scheduler)
    assert told.finished("b").reason is FinishReason.CANCELLED
    assert told.text("a") == "aa"


@pytest.mark.parametrize("can_cut", [True, False])
def test_cancelling_inside_a_prefill_frees_its_slot_and_disturbs_nobody(*, can_cut: bool) -> None:
    cancelled: set[str] = set()
    scheduler = Scheduler(WatchedModel(can_cut=can_cut, slots=2), is_cancelled=cancelled.__contains__)
    scheduler.submit(generate("a", "hello"))
    told = Told()
    while not told.of(Pieces):
        told.messages += scheduler.step()
    scheduler.submit(generate("b", "x" * 30))
    while not [m for m in told.messages if isinstance(m, Prefilled) and m.id == "b"]:
        told.messages += scheduler.step()
    cancelled.add("b")
    told.drain(scheduler)
    scheduler.submit(generate("c", "x" * 31))
    told.drain(scheduler)
    assert told.text("a") == "hello"
    assert told.finished("b").reason is FinishReason.CANCELLED
    assert told.text("c") == "x" * 31


@pytest.mark.parametrize("can_cut", [True, False])
def test_a_refused_decode_call_costs_only_the_guilty_answer(*, can_cut: bool) -> None:
    scheduler = Scheduler(WatchedModel(can_cut=can_cut, slots=3))
    for name, text in (("a", "aaaaaaaa"), ("b", "[[fail at 3]]bbbbbbbb"), ("c", "cccccccc")):
        scheduler.submit(generate(name, text))
    told = Told().drain(scheduler)
    end = told.end("b")
    assert isinstance(end, Failed)
    assert end.code == "decode_failed"
    assert [told.text("a"), told.text("c")] == ["aaaaaaaa", "cccccccc"]
    scheduler.submit(generate("d", "bbb"))
    assert told.drain(scheduler).text("d") == "bbb"


def test_a_refused_prefill_empties_its_slot() -> None:
    scheduler = Scheduler(WatchedModel(slots=1))
    scheduler.submit(generate("a", "[[fail at prefill]]hello"))
    scheduler.submit(generate("b", "[[say hi]]"))
    told = Told().drain(scheduler)
    assert isinstance(told.end("a"), Failed)
    assert told.text("b") == "hi"


def test_embeddings_wait_for_a_slot_and_empty_it() -> None:
    scheduler = Scheduler(WatchedModel(slots=1))
    scheduler.submit(generate("a", "hello"))
    scheduler.submit(EmbedTokens("e", tuple(b"hello")))
    scheduler.submit(EmbedTokens("f", tuple(b"hello")))
    scheduler.submit(generate("b", "hello"))
    told = Told().drain(scheduler)
    one, two = told.end("e"), told.end("f")
    assert isinstance(one, Embedding)
    assert isinstance(two, Embedding)
    assert one.vector == two.vector
    assert told.text("b") == "hello"
    assert told.finished("b").usage.cached_tokens == 0


def test_a_model_without_embeddings_says_so() -> None:
    model = WatchedModel()
    model._info = replace(model._info, embeds=False)
    scheduler = Scheduler(model)
    scheduler.submit(EmbedTokens("e", (1,)))
    end = Told().drain(scheduler).end("e")
    assert isinstance(end, Failed)
    assert end.code == "embeddings_unsupported"


def test_the_slots_are_told_whenever_they_change() -> None:
    scheduler = Scheduler(WatchedModel(slots=1))
    scheduler.submit(generate("a", "abc"))
    scheduler.submit(generate("b", "abc"))
    told = Told().drain(scheduler)
    seen = [(m.views[0].state, m.views[0].request, m.waiting) for m in told.messages if isinstance(m, Slots)]
    one, two = [("prefill", "a", 1), ("decode", "a", 1)], [("prefill", "b", 0), ("decode", "b", 0)]
    assert seen == [*one, ("idle", None, 1), *two, ("idle", None, 0)]


def test_an_admitted_request_is_told_before_its_prompt_is_evaluated() -> None:
    model = WatchedModel()
    scheduler = Scheduler(model)
    scheduler.submit(generate("a", "abc"))
    assert [type(message) for message in scheduler.step()] == [Started, Slots]
    assert model.calls == []


# ---- anything at any time --------------------------------------------------------------------------------------------

texts = st.text(st.sampled_from("abé€😀 "), min_size=1, max_size=12)
actions = st.one_of(
    st.tuples(st.just("submit"), texts, st.integers(0, 30)),
    st.tuples(st.just("fail"), texts, st.integers(0, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 12)),
    st.tuples(st.just("abort"), st.integers(0, 12)),
    st.tuples(st.just("step"), st.integers(1, 6)),
)


def play(
    todo: list[tuple[object, ...]], scheduler: Scheduler, told: Told, cancelled: set[str]
) -> dict[str, tuple[str, int]]:
    """Do what hypothesis thought of; return what each request must say, and how much of it at most."""
    wanted: dict[str, tuple[str, int]] = {}
    for action, *arguments in todo:
        name = str(len(wanted))
        match action, arguments:
            case "submit", [str(text), int(max_tokens)]:
                wanted[name] = (text, max_tokens)
                scheduler.submit(generate(name, text, max_tokens=max_tokens))
            case "fail", [str(text), int(at)]:
                wanted[name] = (text, 50)
                scheduler.submit(generate(name, f"{text}[[fail at {at}]]"))
            case "cancel", [int(number)]:
                scheduler.cancel(str(number))
            case "abort", [int(number)]:
                cancelled.add(str(number))
            case "step", [int(count)]:
                for _ in range(count):
                    told.messages += scheduler.step()
    return wanted


@settings(deadline=None, max_examples=200)
@given(st.lists(actions, max_size=40), st.integers(1, 4), st.integers(1, 9), st.booleans())
def test_every_request_ends_exactly_once_and_no_slot_is_lost(
    todo: list[tuple[object, ...]], slots: int, batch: int, can_cut: bool
) -> None:
    cancelled: set[str] = set()
    model = WatchedModel(slots=slots, batch=batch, can_cut=can_cut)
    scheduler = Scheduler(model, is_cancelled=cancelled.__contains__)
    told = Told()
    wanted = play(todo, scheduler, told, cancelled)
    told.drain(scheduler)
    for name, (text, max_tokens) in wanted.items():
        end = told.end(name)
        answer = text.encode()[:max_tokens]
        if isinstance(end, Finished) and end.reason is not FinishReason.CANCELLED:
            assert told.tokens(name) == answer
            assert told.text(name) == answer.decode(errors="replace")
        else:
            assert answer.startswith(told.tokens(name)) or isinstance(end, Failed)
    views = [m for m in told.messages if isinstance(m, Slots)][-1:]
    assert all(view.state == "idle" for m in views for view in m.views)
    for number in range(slots):
        scheduler.submit(generate(f"last {number}", "still works"))
    told.drain(scheduler)
    assert all(told.text(f"last {number}") == "still works" for number in range(slots))


def test_decode_aborted_is_only_ever_raised_in_a_prefill() -> None:
    model = WatchedModel()
    with pytest.raises(DecodeAborted):
        model.decode([Row(1, 0, 0, True)], should_abort=lambda: True)
    model.decode([Row(1, 0, 0, True)])
