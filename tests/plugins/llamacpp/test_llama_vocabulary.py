"""The vocabulary, without weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optaned.api import Backend, Vocabulary

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def vocabulary(backend: Backend, smol_file: Path) -> Iterator[Vocabulary]:
    opened = backend.vocabulary([smol_file])
    yield opened
    opened.close()


def test_it_says_what_it_is(vocabulary: Vocabulary) -> None:
    info = vocabulary.info
    assert (info.size, info.bos, info.eos, info.architecture) == (49152, 1, 2, "llama")
    assert info.trained_context == 8192
    assert info.special["<|im_start|>"] == 1
    assert info.template is not None
    assert "im_start" in info.template


def test_control_tokens_are_read_only_where_markup_is_meant(vocabulary: Vocabulary) -> None:
    assert vocabulary.tokenize("<|im_start|>", special=True, bos=False) == [1]
    assert 1 not in vocabulary.tokenize("<|im_start|>", special=False, bos=False)


def test_control_tokens_are_silent_unless_asked_for(vocabulary: Vocabulary) -> None:
    assert vocabulary.piece(1) == b""
    assert vocabulary.piece(1, special=True) == b"<|im_start|>"


def test_the_ends_of_an_answer_are_known(vocabulary: Vocabulary) -> None:
    assert vocabulary.is_end(2)
    assert not vocabulary.is_end(1000)


def test_a_token_that_does_not_exist_is_an_index_error(vocabulary: Vocabulary) -> None:
    with pytest.raises(IndexError):
        vocabulary.piece(49152)


def test_half_a_surrogate_pair_is_no_crash(vocabulary: Vocabulary) -> None:
    assert vocabulary.tokenize("a\ud800b", special=False, bos=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=200))
def test_text_survives_the_way_there_and_back(tiny_vocabulary: Vocabulary, text: str) -> None:
    """On the vocabulary that has every byte; SmolLM2's lacks the one that begins the planes above 3."""
    tokens = tiny_vocabulary.tokenize(text, special=False, bos=False)
    assert b"".join(map(tiny_vocabulary.piece, tokens)) == text.encode()


def test_closing_twice_is_nothing(backend: Backend, tiny_file: Path) -> None:
    opened = backend.vocabulary([tiny_file])
    opened.close()
    opened.close()
