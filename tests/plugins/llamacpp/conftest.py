"""The backend on real models: SmolLM2 for text, tiny random ones for everything else. Skipped without the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optaned.api import Backend, LoadRequest, Model, Row, Sampling, Vocabulary
from optaned.testing.gguf import build_dense
from optaned.testing.kimi_k3 import K3Shape, build_kimi_k3


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_dense(tmp_path_factory.mktemp("dense") / "dense.gguf")


@pytest.fixture(scope="session")
def kimi_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return build_kimi_k3(tmp_path_factory.mktemp("kimi") / "kimi.gguf", shape=replace(K3Shape(), experts=32))


@pytest.fixture(scope="session")
def load(backend: Backend) -> Iterator[Callable[..., Model]]:
    """Return a function that loads files; one thread, because spinning threads and a busy machine do not mix."""
    opened: list[Model] = []

    def open_one(files: Path | Sequence[Path], **changes: Any) -> Model:
        paths = (files,) if isinstance(files, Path) else tuple(files)
        request = replace(LoadRequest(paths, context=1024, slots=4, threads=1, batch=256), **changes)
        opened.append(backend.load(request, lambda _fraction: True))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


@pytest.fixture(scope="session")
def smol(load: Callable[..., Model], smol_file: Path) -> Model:
    return load(smol_file)


@pytest.fixture(scope="session")
def tiny(load: Callable[..., Model], tiny_file: Path) -> Model:
    return load(tiny_file)


@pytest.fixture(scope="session")
def kimi(load: Callable[..., Model], kimi_files: tuple[Path, ...]) -> Model:
    return load(kimi_files)


@pytest.fixture(scope="session")
def tiny_vocabulary(backend: Backend, tiny_file: Path) -> Iterator[Vocabulary]:
    vocabulary = backend.vocabulary([tiny_file])
    yield vocabulary
    vocabulary.close()


@pytest.fixture(scope="session")
def prefill() -> Callable[..., None]:
    def evaluate(model: Model, tokens: Sequence[int], *, slot: int = 0, start: int = 0) -> None:
        last = len(tokens) - 1
        model.decode([Row(token, start + i, slot, i == last) for i, token in enumerate(tokens)])

    return evaluate


@pytest.fixture(scope="session")
def generate(prefill: Callable[..., None]) -> Callable[..., list[int]]:
    """Return a function that answers a prompt in an empty slot and returns the tokens, without the one that ends it."""

    def answer(model: Model, prompt: Sequence[int], sampling: Sampling, *, most: int = 24, slot: int = 0) -> list[int]:
        model.cut(slot, 0)
        prefill(model, prompt, slot=slot)
        sampler = model.sampler(sampling, prompt)
        tokens: list[int] = []
        while len(tokens) < most:
            token = sampler.sample(0, position=len(tokens), top_logprobs=None).token
            if model.vocabulary.is_end(token):
                break
            tokens.append(token)
            model.decode((Row(token, len(prompt) + len(tokens) - 1, slot, logits=True),))
        sampler.close()
        model.cut(slot, 0)
        return tokens

    return answer
