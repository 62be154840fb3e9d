"""The router's tap: what it counts is what the router chose, natively and in Python, and answers stay what they were."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optaned.api import Mapped, Model, Row, Sampling, Tapped
from optaned.index import read_index
from optaned.testing.gguf import build_moe

LAYERS, EXPERTS, USED = 3, 8, 2
PROMPT = [5, 9, 17, 3, 40, 8]


@pytest.fixture(scope="session")
def moe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_moe(tmp_path_factory.mktemp("moe") / "moe.gguf", experts=EXPERTS, used=USED, layers=LAYERS)


@pytest.fixture(params=["native", "python"])
def tapped(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    load: Callable[..., Model],
    moe_file: Path,
) -> Iterator[Any]:
    tap = pytest.importorskip("optaned_llamacpp.tap")
    if request.param == "python":
        monkeypatch.setattr(tap, "open_native", lambda _library: "not built, in this test")
    elif isinstance(why := tap.open_native(pytest.importorskip("optaned_llamacpp.library").open_library()), str):
        pytest.skip(why)
    model = load(moe_file, index=read_index([moe_file]))
    yield model
    model.close()


def test_a_loaded_model_says_that_it_is_tapped_and_mapped(tapped: Model, moe_file: Path) -> None:
    assert isinstance(tapped, Tapped)
    assert isinstance(tapped, Mapped)
    assert tapped.mapped_files == (moe_file,)


def test_every_token_chooses_its_experts_in_every_layer(tapped: Any, generate: Callable[..., list[int]]) -> None:
    tapped.take_counts()
    answer = generate(tapped, PROMPT, Sampling(temperature=0.0), most=7)
    counts = tapped.take_counts()
    assert counts.decode.shape == counts.prefill.shape == (LAYERS, EXPERTS)
    assert counts.decode.dtype == np.uint32
    assert counts.tokens == len(answer)
    assert counts.prefill_tokens == len(PROMPT)
    assert (counts.decode.sum(axis=1) == USED * len(answer)).all()
    # The library evaluates only the rows that give logits in the last layer.
    assert counts.prefill.sum(axis=1).tolist() == [USED * len(PROMPT)] * (LAYERS - 1) + [USED]


def test_taken_counts_are_forgotten(tapped: Any, generate: Callable[..., list[int]]) -> None:
    generate(tapped, PROMPT, Sampling(temperature=0.0), most=3)
    tapped.take_counts()
    again = tapped.take_counts()
    assert not again.decode.any()
    assert not again.prefill.any()
    assert again.tokens == again.prefill_tokens == 0


def test_a_traced_choice_is_a_counted_one(tapped: Any, generate: Callable[..., list[int]]) -> None:
    tapped.take_counts()
    tapped.trace(on=True)
    generate(tapped, PROMPT, Sampling(temperature=0.0), most=5)
    choices = tapped.take_choices()
    tapped.trace(on=False)
    counts = tapped.take_counts()
    rebuilt = np.zeros((LAYERS, EXPERTS), np.uint32)
    for choice in choices:
        assert len(choice.experts) == USED
        rebuilt[choice.layer, list(choice.experts)] += 1
    assert (rebuilt == counts.decode + counts.prefill).all()
    generate(tapped, PROMPT, Sampling(temperature=0.0), most=2)
    assert tapped.take_choices() == ()


def test_an_interruptible_call_counts_as_prefill(tapped: Any) -> None:
    tapped.cut(0, 0)
    tapped.take_counts()
    tapped.decode([Row(7, 0, 0, logits=True)], should_abort=lambda: False)
    counts = tapped.take_counts()
    assert (counts.tokens, counts.prefill_tokens) == (0, 1)


def test_a_hook_hears_each_choice_before_the_experts_are_read(tapped: Any) -> None:
    heard: list[tuple[int, list[list[int]], bool]] = []
    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_int
    )

    def hear(_data: int, layer: int, ids: int, used: int, tokens: int, stride: int, is_prefill: int) -> None:
        rows = [list((ctypes.c_int32 * used).from_address(ids + i * stride)) for i in range(tokens)]
        heard.append((layer, rows, bool(is_prefill)))

    hook = kind(hear)
    assert tapped.on_choice(ctypes.cast(hook, ctypes.c_void_p).value, 0)
    tapped.cut(0, 0)
    tapped.take_counts()
    tapped.decode([Row(token, at, 0, logits=True) for at, token in enumerate(PROMPT)])
    tapped.decode([Row(11, len(PROMPT), 0, logits=True)])
    tapped.on_choice(0, 0)
    counts = tapped.take_counts()
    assert [(layer, len(rows), prefill) for layer, rows, prefill in heard] == [
        *((layer, len(PROMPT), True) for layer in range(LAYERS)),
        *((layer, 1, False) for layer in range(LAYERS)),
    ]
    total = sum(np.bincount(np.ravel(rows), minlength=EXPERTS) for _, rows, _ in heard)
    assert (total == (counts.decode + counts.prefill).sum(axis=0)).all()


def test_answers_are_the_same_with_and_without_a_tap(
    tapped: Any, load: Callable[..., Model], moe_file: Path, generate: Callable[..., list[int]]
) -> None:
    plain = load(moe_file)
    sampling = Sampling(temperature=0.0)
    assert generate(tapped, PROMPT, sampling) == generate(plain, PROMPT, sampling)
    plain.close()


def test_a_dense_model_has_nothing_to_count(load: Callable[..., Model], tiny_file: Path) -> None:
    model: Any = load(tiny_file, index=read_index([tiny_file]))
    model.decode([Row(7, 0, 0, logits=True)])
    counts = model.take_counts()
    assert counts.decode.size == counts.tokens == 0
    assert not model.on_choice(0, 0)
    model.close()


def test_the_slow_tap_says_what_it_costs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, load: Callable[..., Model], moe_file: Path
) -> None:
    tap = pytest.importorskip("optaned_llamacpp.tap")
    monkeypatch.setattr(tap, "open_native", lambda _library: "no compiler")
    with caplog.at_level(logging.WARNING):
        load(moe_file, index=read_index([moe_file])).close()
    assert "a fifth of the speed: no compiler" in caplog.text
