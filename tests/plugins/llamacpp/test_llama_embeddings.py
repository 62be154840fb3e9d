"""Sentence embeddings of a generating model."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from optaned.api import DecodeAborted, DecodeFailed, Embeds, Model, Row, Sampling

pytestmark = pytest.mark.model


def embedded(model: Model, text: str) -> list[float]:
    assert isinstance(model, Embeds)
    return model.embed(3, model.vocabulary.tokenize(text, special=False, bos=True))


def test_near_sentences_are_nearer_than_far_ones(smol: Model) -> None:
    cat, kitten, tax = (
        np.array(embedded(smol, text))
        for text in (
            "The cat sleeps on the sofa.",
            "A kitten naps on the couch.",
            "Quarterly tax returns are due in April.",
        )
    )
    assert cat @ kitten > cat @ tax


def test_an_embedding_has_the_models_size_and_length_one(smol: Model) -> None:
    vector = embedded(smol, "hello")
    assert len(vector) == smol.info.embedding_size
    assert math.hypot(*vector) == pytest.approx(1.0)


def test_a_text_longer_than_a_batch_is_embedded_in_chunks(smol: Model) -> None:
    long = embedded(smol, "the quick brown fox " * 60)
    assert np.array(long) @ np.array(embedded(smol, "the quick brown fox " * 20)) > 0.8


def test_the_slot_is_empty_afterwards_and_generation_goes_on(smol: Model, generate: Callable[..., list[int]]) -> None:
    prompt = smol.vocabulary.tokenize("The capital of France is", special=False, bos=False)
    before = generate(smol, prompt, Sampling(temperature=0), most=5, slot=3)
    first = embedded(smol, "one")
    assert embedded(smol, "one") == pytest.approx(first, abs=1e-5)
    assert generate(smol, prompt, Sampling(temperature=0), most=5, slot=3) == before


def test_a_hybrid_model_embeds_too(kimi: Model) -> None:
    assert len(embedded(kimi, "hello world")) == kimi.info.embedding_size


def test_embedding_can_be_aborted_and_the_slot_is_usable(smol: Model) -> None:
    assert isinstance(smol, Embeds)
    with pytest.raises(DecodeAborted):
        smol.embed(3, [5] * 200, should_abort=lambda: True)
    smol.decode([Row(5, 0, 3, logits=True)])
    smol.cut(3, 0)


def test_nothing_has_no_embedding(smol: Model) -> None:
    assert isinstance(smol, Embeds)
    with pytest.raises(DecodeFailed, match="empty"):
        smol.embed(3, [])
