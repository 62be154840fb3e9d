"""Decoding, cancelling and forgetting, on a dense model and on a miniature hybrid."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from optaned.api import DecodeAborted, DecodeFailed, Model, Row, Sampling

pytestmark = pytest.mark.model

GREEDY = Sampling(temperature=0)


@pytest.fixture(params=["tiny", "kimi"])
def model(request: pytest.FixtureRequest) -> Model:
    loaded: Model = request.getfixturevalue(request.param)
    for slot in range(loaded.info.slots):
        loaded.cut(slot, 0)
    return loaded


def tokens_of(model: Model, text: str) -> list[int]:
    return model.vocabulary.tokenize(text, special=True, bos=False)


def continued(model: Model, slot: int, position: int, count: int) -> list[int]:
    """Greedily choose from the rows there are and go on `count` times."""
    sampler = model.sampler(GREEDY, ())
    chosen = []
    for step in range(count):
        chosen.append(sampler.sample(0, position=step, top_logprobs=None).token)
        model.decode([Row(chosen[-1], position + step, slot, logits=True)])
    sampler.close()
    return chosen


def test_a_real_model_answers_a_question(smol: Model, generate: Callable[..., list[int]]) -> None:
    prompt = tokens_of(smol, "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    answer = b"".join(map(smol.vocabulary.piece, generate(smol, prompt, GREEDY)))
    assert answer == b"The capital of France is Paris."


def test_slots_that_decode_together_answer_as_they_do_alone(
    model: Model, prefill: Callable[..., None], generate: Callable[..., list[int]]
) -> None:
    prompts = [tokens_of(model, text) for text in ("hello", "the world", "abc abc")]
    alone = [generate(model, prompt, GREEDY, most=6, slot=1) for prompt in prompts]
    sampler = model.sampler(GREEDY, ())
    together: list[list[int]] = []
    for slot, prompt in zip((3, 0, 2), prompts, strict=True):
        prefill(model, prompt, slot=slot)
        together.append([sampler.sample(0, position=0, top_logprobs=None).token])
    for step in range(5):
        rows = [Row(together[i][-1], len(prompts[i]) + step, slot, logits=True) for i, slot in enumerate((3, 0, 2))]
        model.decode(rows)
        for i in range(3):
            together[i].append(sampler.sample(i, position=step + 1, top_logprobs=None).token)
    assert [mine[: len(theirs)] for mine, theirs in zip(together, alone, strict=True)] == alone


def test_output_rows_are_numbered_over_the_rows_that_ask(model: Model) -> None:
    rows = [
        Row(5, 0, 0, logits=False),
        Row(6, 1, 0, logits=True),
        Row(7, 0, 1, logits=False),
        Row(8, 1, 1, logits=True),
    ]
    model.decode(rows)
    sampler = model.sampler(GREEDY, ())
    both = [sampler.sample(output, position=0, top_logprobs=None).token for output in (0, 1)]
    for slot, tokens in ((2, (5, 6)), (3, (7, 8))):
        model.decode([Row(token, i, slot, logits=i == 1) for i, token in enumerate(tokens)])
        assert sampler.sample(0, position=0, top_logprobs=None).token == both[slot - 2]
    with pytest.raises(IndexError):
        sampler.sample(1, position=0, top_logprobs=None)


def test_an_aborted_prefill_changes_nothing_for_another_slot(model: Model, prefill: Callable[..., None]) -> None:
    prompt = tokens_of(model, "once upon a time")
    prefill(model, prompt, slot=1)
    undisturbed = continued(model, 1, len(prompt), 8)
    model.cut(1, 0)

    prefill(model, prompt, slot=1)
    first = continued(model, 1, len(prompt), 3)
    calls = iter(range(1000))
    with pytest.raises(DecodeAborted):
        model.decode([Row(7, i, 2, logits=i == 199) for i in range(200)], should_abort=lambda: next(calls) >= 5)
    assert model.cut(2, 0)
    model.decode([Row(first[-1], len(prompt) + 3, 3, logits=True)])  # another slot is usable at once
    model.cut(3, 0)
    model.cut(1, 0)
    prefill(model, prompt, slot=1)
    assert continued(model, 1, len(prompt), 8) == undisturbed


def test_an_abort_in_between_does_not_move_the_next_tokens(model: Model, prefill: Callable[..., None]) -> None:
    prompt = tokens_of(model, "once upon a time")

    def run(*, disturbed: bool) -> list[int]:
        model.cut(1, 0)
        prefill(model, prompt, slot=1)
        sampler = model.sampler(GREEDY, ())
        chosen = [sampler.sample(0, position=0, top_logprobs=None).token]
        for step in range(8):
            if disturbed and step == 4:
                with pytest.raises(DecodeAborted):
                    model.decode([Row(9, i, 0, logits=i == 99) for i in range(100)], should_abort=lambda: True)
                model.cut(0, 0)
            model.decode([Row(chosen[-1], len(prompt) + step, 1, logits=True)])
            chosen.append(sampler.sample(0, position=0, top_logprobs=None).token)
        return chosen

    assert run(disturbed=True) == run(disturbed=False)


def test_an_error_while_asking_whether_to_abort_comes_out(model: Model) -> None:
    def broken() -> bool:
        raise LookupError("asked")

    with pytest.raises(LookupError, match="asked"):
        model.decode([Row(5, i, 0, logits=False) for i in range(20)], should_abort=broken)
    model.cut(0, 0)
    model.decode([Row(5, 0, 0, logits=True)])


def test_the_abort_callback_is_asked_only_in_the_call_it_was_given_to(model: Model) -> None:
    asked: list[bool] = []
    model.decode([Row(5, i, 0, logits=False) for i in range(20)], should_abort=lambda: bool(asked.append(True)))
    count = len(asked)
    assert count > 0
    model.decode([Row(5, 20, 0, logits=True)])
    assert len(asked) == count


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([Row(10**6, 0, 0, logits=True)], "llama_decode returned -1"),
        ([Row(5, 7, 0, logits=True), Row(5, 3, 0, logits=True)], "llama_decode returned -1"),
        ([Row(5, i, 0, logits=False) for i in range(257)], "257 rows do not fit a batch of 256"),
        ([Row(5, 0, 9, logits=True)], "slot 9"),
    ],
)
def test_a_decode_that_cannot_work_says_why(model: Model, rows: list[Row], words: str) -> None:
    with pytest.raises(DecodeFailed, match=words):
        model.decode(rows)
    model.cut(0, 0)
    model.decode([Row(5, 0, 0, logits=True)])


def test_more_tokens_than_cells_is_a_failure_not_an_abort(load: Callable[..., Model], tiny_file: object) -> None:
    small = load(tiny_file, context=256, slots=1)
    small.decode([Row(5, i, 0, logits=False) for i in range(256)])
    with pytest.raises(DecodeFailed, match="no free cache cells"):
        small.decode([Row(5, 256, 0, logits=True)])


def test_no_rows_are_no_call(model: Model) -> None:
    model.decode([])


def test_a_dense_model_forgets_its_tail_and_goes_on_as_if_it_had_never_been(
    tiny: Model, prefill: Callable[..., None]
) -> None:
    prompt = tokens_of(tiny, "the quick brown fox")
    tiny.cut(0, 0)
    prefill(tiny, prompt)
    expected = continued(tiny, 0, len(prompt), 6)
    assert tiny.cut(0, len(prompt) - 1)
    prefill(tiny, prompt[-1:], start=len(prompt) - 1)
    assert continued(tiny, 0, len(prompt), 6) == expected


def test_a_hybrid_model_says_that_it_cannot_forget_a_tail(kimi: Model, prefill: Callable[..., None]) -> None:
    prompt = tokens_of(kimi, "the quick brown fox")
    assert not kimi.info.can_cut
    kimi.cut(0, 0)
    prefill(kimi, prompt)
    expected = continued(kimi, 0, len(prompt), 4)
    assert not kimi.cut(0, len(prompt) - 1)
    assert kimi.cut(0, len(prompt) + 4)
    assert kimi.cut(0, 0)
    prefill(kimi, prompt)
    assert continued(kimi, 0, len(prompt), 4) == expected


def test_closing_twice_is_nothing(load: Callable[..., Model], tiny_file: object) -> None:
    model = load(tiny_file, slots=1, context=256)
    model.close()
    model.close()
