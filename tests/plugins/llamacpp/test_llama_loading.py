"""Loading: what works, and the one line that says why something does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import optaned_llamacpp
from optaned.api import (
    Backend,
    ConfigError,
    Env,
    LoadRequest,
    MissingFileError,
    Model,
    ModelFileError,
    OptanedError,
    Sampling,
    UnavailableError,
)
from optaned.testing.gguf import Blueprint, build_split, write_gguf
from optaned_llamacpp.library import open_library
from optaned_llamacpp.loading import explain

pytestmark = pytest.mark.model


def request(*files: Path) -> LoadRequest:
    return LoadRequest(files, context=256, slots=2, threads=1, batch=64)


def failure(backend: Backend, wanted: LoadRequest) -> OptanedError:
    with pytest.raises(OptanedError) as raised:
        backend.load(wanted, lambda _fraction: True)
    assert len(str(raised.value).splitlines()) == 1
    return raised.value


def test_a_loaded_model_says_what_it_is(smol: Model) -> None:
    info = smol.info
    assert (info.context, info.slots, info.batch, info.threads) == (1024, 4, 256, 1)
    assert info.parameters == 134_515_008
    assert info.embedding_size == 576
    assert info.can_cut
    assert info.embeds
    assert "llama-cpp-python" in info.library


def test_threads_never_exceed_the_affinity_mask(load: Callable[..., Model], tiny_file: Path) -> None:
    model = load(tiny_file, threads=1000)
    assert 1 <= model.info.threads < 1000


def test_a_split_model_loads_from_its_shards_whatever_they_are_called(
    load: Callable[..., Model], tmp_path: Path, generate: Callable[..., list[int]]
) -> None:
    shards = build_split(tmp_path / "split.gguf", shards=3, experts=4)
    assert load(shards).info.parameters > 0


def test_progress_is_reported_up_to_the_end(backend: Backend, tiny_file: Path) -> None:
    seen: list[float] = []
    backend.load(request(tiny_file), lambda fraction: not seen.append(fraction)).close()
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)


def test_loading_can_be_given_up(backend: Backend, tiny_file: Path) -> None:
    with pytest.raises(UnavailableError, match="given up"):
        backend.load(request(tiny_file), lambda _fraction: False)


def test_an_error_in_progress_is_not_lost_in_c(backend: Backend, tiny_file: Path) -> None:
    def broken(fraction: float) -> bool:
        raise LookupError(fraction)

    with pytest.raises(LookupError):
        backend.load(request(tiny_file), broken)


def test_a_missing_file_is_named(backend: Backend, tmp_path: Path) -> None:
    error = failure(backend, request(tmp_path / "none.gguf"))
    assert isinstance(error, MissingFileError)
    assert "none.gguf" in str(error)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000])
def test_a_truncated_file_is_one_line(backend: Backend, tiny_file: Path, tmp_path: Path, keep: int) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_file.read_bytes()[:keep])
    error = failure(backend, request(broken))
    assert isinstance(error, ModelFileError)
    assert "broken.gguf" in str(error)


def test_a_file_that_is_no_gguf_is_one_line(backend: Backend, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"PK\x03\x04" + bytes(4096))
    assert isinstance(failure(backend, request(wrong)), ModelFileError)


def test_a_library_too_old_for_the_architecture_says_so_and_names_the_next_step(
    backend: Backend, tmp_path: Path
) -> None:
    future = write_gguf(tmp_path / "future.gguf", Blueprint("kimi-k9", {"general.name": "future"}, {}))[0]
    error = failure(backend, request(future))
    assert isinstance(error, UnavailableError)
    assert "kimi-k9" in str(error)
    assert "llama-cpp-python" in str(error)
    assert "pip install -U" in str(error)
    with pytest.raises(UnavailableError, match="kimi-k9"):
        backend.vocabulary([future])


def test_a_file_is_not_blamed_where_memory_ran_out() -> None:
    said = ["llama_model_load: error loading model: mmap failed: Cannot allocate memory", "failed to load model"]
    error = explain(open_library(), Path("m.gguf"), said)
    assert isinstance(error, UnavailableError)
    assert str(error).startswith("m.gguf: cannot be loaded: mmap failed: Cannot allocate memory; free memory, or lift")


def test_an_unknown_cache_type_is_told_with_those_that_exist(backend: Backend, tiny_file: Path) -> None:
    error = failure(backend, replace(request(tiny_file), kv_cache="q3_k"))
    assert isinstance(error, ConfigError)
    assert "q8_0" in str(error)


def test_a_cache_that_no_memory_can_hold_is_one_line(backend: Backend, smol_file: Path) -> None:
    """193 GB: refused at once where memory is smaller, since the kernel does not overcommit that obviously."""
    error = failure(backend, replace(request(smol_file), context=1 << 20, slots=4, kv_cache="f32"))
    assert isinstance(error, UnavailableError)
    assert "4 slots of 1048576 tokens (f32)" in str(error)


def test_a_quantized_cache_answers_too(
    load: Callable[..., Model], smol_file: Path, generate: Callable[..., list[int]]
) -> None:
    model = load(smol_file, kv_cache="q8_0", context=128, slots=1)
    prompt = model.vocabulary.tokenize("The capital of France is", special=False, bos=False)
    answer = generate(model, prompt, Sampling(temperature=0), most=3)
    assert b"Paris" in b"".join(map(model.vocabulary.piece, answer))


def test_a_quantized_cache_without_flash_attention_is_refused_with_the_reason(smol_file: Path) -> None:
    options = optaned_llamacpp.LlamaOptions(flash_attention="off")
    strict = optaned_llamacpp.optaned_backends()[0].open("llamacpp", options, Env())
    error = failure(strict, replace(request(smol_file), kv_cache="q8_0"))
    assert isinstance(error, ConfigError)
    assert "flash" in str(error).lower()


def test_the_librarys_own_error_reaches_our_log(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="optaned.llamacpp")
    (tmp_path / "no.gguf").write_bytes(b"none")
    failure(backend, request(tmp_path / "no.gguf"))
    assert any(record.name == "optaned.llamacpp" for record in caplog.records)
