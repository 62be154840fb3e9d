"""Every sampling parameter has its effect, and the same seed at the same position gives the same token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from optaned.api import Model, Row, Sampling, TokenLogprob

pytestmark = pytest.mark.model

FLAT = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)  # the model's own distribution
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def prompt(smol: Model) -> list[int]:
    return smol.vocabulary.tokenize("My favourite colours are red, red, red, and", special=False, bos=False)


@pytest.fixture
def row(smol: Model, prompt: list[int]) -> Iterator[Model]:
    """SmolLM2 with one output row to choose from."""
    smol.cut(0, 0)
    smol.decode([Row(token, i, 0, logits=i == len(prompt) - 1) for i, token in enumerate(prompt)])
    yield smol
    smol.cut(0, 0)


def drawn(model: Model, sampling: Sampling, history: list[int], *, positions: range = range(60)) -> list[int]:
    """Choose at many positions from the same row, each time with a fresh memory."""
    chosen = []
    for position in positions:
        sampler = model.sampler(sampling, history)
        chosen.append(sampler.sample(0, position=position, top_logprobs=None).token)
        sampler.close()
    return chosen


def test_the_same_seed_and_position_give_the_same_token_whatever_came_before(row: Model, prompt: list[int]) -> None:
    one = row.sampler(replace(FLAT, seed=7), prompt)
    in_order = [one.sample(0, position=p, top_logprobs=None).token for p in range(20)]
    other = row.sampler(replace(FLAT, seed=7), prompt)
    backwards = [other.sample(0, position=p, top_logprobs=None).token for p in reversed(range(20))]
    assert in_order == backwards[::-1]
    assert len(set(in_order)) > 5
    assert drawn(row, replace(FLAT, seed=8), prompt, positions=range(20)) != in_order
    one.close()
    other.close()


def test_seeds_of_any_size_are_seeds(row: Model, prompt: list[int]) -> None:
    for seed in (0, -1, 2**32 - 1, 2**64 + 5):
        assert drawn(row, replace(FLAT, seed=seed), prompt) == drawn(row, replace(FLAT, seed=seed), prompt)


def test_a_resumed_answer_goes_on_as_it_would_have(
    smol: Model, prompt: list[int], generate: Callable[..., list[int]]
) -> None:
    sampling = Sampling(
        seed=3, temperature=1.5, repeat_penalty=1.2, dry_multiplier=0.5, logit_bias=((2, -100.0), (0, -100.0))
    )
    whole = generate(smol, prompt, sampling, most=12)
    smol.decode([Row(t, i, 0, logits=i == len(prompt) + 4) for i, t in enumerate([*prompt, *whole[:5]])])
    sampler = smol.sampler(sampling, [*prompt, *whole[:5]])
    assert sampler.sample(0, position=5, top_logprobs=None).token == whole[5]
    sampler.close()
    smol.cut(0, 0)


def test_draws_follow_the_models_distribution(row: Model, prompt: list[int]) -> None:
    sampler = row.sampler(GREEDY, prompt)
    likeliest = sampler.sample(0, position=0, top_logprobs=1).logprob
    sampler.close()
    assert likeliest is not None
    expected = math.exp(likeliest.logprob)
    share = drawn(row, FLAT, prompt, positions=range(600)).count(likeliest.token) / 600
    assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 600))


@pytest.mark.parametrize(
    "narrow",
    [{"top_k": 1}, {"top_p": 0.01}, {"min_p": 0.99}, {"temperature": 0.01}, {"temperature": -1.0}],
    ids=lambda change: next(iter(change)),
)
def test_the_narrowest_setting_leaves_the_likeliest_token(
    row: Model, prompt: list[int], narrow: dict[str, float]
) -> None:
    best = drawn(row, GREEDY, prompt, positions=range(1))[0]
    assert set(drawn(row, replace(FLAT, **narrow), prompt, positions=range(20))) == {best}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [{"top_k": 3}, {"top_p": 0.4}, {"min_p": 0.3}, {"typical_p": 0.3}, {"temperature": 0.3}], ids=str
)
def test_a_narrower_setting_leaves_fewer_tokens(row: Model, prompt: list[int], change: dict[str, float]) -> None:
    narrowed = set(drawn(row, replace(FLAT, **change), prompt))  # type: ignore[arg-type]
    assert len(narrowed) < len(set(drawn(row, FLAT, prompt)))


@pytest.mark.parametrize(
    "change", [{"repeat_penalty": 1.8}, {"frequency_penalty": 3.0}, {"presence_penalty": 6.0}], ids=str
)
def test_a_penalty_makes_what_was_said_less_likely(row: Model, prompt: list[int], change: dict[str, float]) -> None:
    red = row.vocabulary.tokenize(" red", special=False, bos=False)[0]
    biased = replace(FLAT, logit_bias=((red, 5.0),))
    before = drawn(row, biased, prompt).count(red)
    after = drawn(row, replace(biased, **change), prompt).count(red)  # type: ignore[arg-type]
    assert after < before
    unseen = drawn(row, replace(biased, **change, repeat_last_n=1), prompt).count(red)  # type: ignore[arg-type]
    assert unseen == before


def test_dry_breaks_a_loop(smol: Model, generate: Callable[..., list[int]]) -> None:
    loop = smol.vocabulary.tokenize(" one two three four five six" * 6, special=False, bos=False)
    plain = generate(smol, loop, GREEDY, most=12)
    dry = generate(smol, loop, replace(GREEDY, dry_multiplier=5.0), most=12)
    assert plain[:6] != dry[:6]


def test_bias_forbids_and_forces(row: Model, prompt: list[int]) -> None:
    best = drawn(row, GREEDY, prompt, positions=range(1))[0]
    assert drawn(row, replace(GREEDY, logit_bias=((best, -100.0),)), prompt, positions=range(1))[0] != best
    assert set(drawn(row, replace(FLAT, logit_bias=((1234, 100.0),)), prompt)) == {1234}
    out_of_range = replace(GREEDY, logit_bias=((10**7, 100.0), (-5, 100.0)))
    assert drawn(row, out_of_range, prompt, positions=range(1)) == [best]


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_is_repeatable_and_follows_its_target(row: Model, prompt: list[int], version: int) -> None:
    calm = Sampling(temperature=1.0, mirostat=version, mirostat_tau=0.1)
    wild = Sampling(temperature=1.0, mirostat=version, mirostat_tau=9.0)
    assert drawn(row, wild, prompt) == drawn(row, wild, prompt)
    assert len(set(drawn(row, calm, prompt))) < len(set(drawn(row, wild, prompt)))


def test_logprobs_are_those_of_the_model_whatever_the_sampling(row: Model, prompt: list[int]) -> None:
    def logprob(sampling: Sampling, top: int) -> TokenLogprob:
        sampler = row.sampler(sampling, prompt)
        found = sampler.sample(0, position=0, top_logprobs=top).logprob
        sampler.close()
        assert found is not None
        return found

    everything = logprob(GREEDY, row.vocabulary.info.size)
    assert sum(math.exp(value) for _, value in everything.top) == pytest.approx(1.0)
    assert [value for _, value in everything.top] == sorted((value for _, value in everything.top), reverse=True)
    assert everything.top[0] == (everything.token, everything.logprob)
    assert logprob(replace(FLAT, repeat_penalty=2.0, top_k=2), 3).top == everything.top[:3]
    assert logprob(GREEDY, 0).top == ()


def test_a_sampler_closes_twice(row: Model, prompt: list[int]) -> None:
    for sampling in (GREEDY, FLAT, replace(FLAT, grammar='root ::= "a"'), replace(FLAT, mirostat=2)):
        sampler = row.sampler(sampling, prompt)
        sampler.close()
        sampler.close()
