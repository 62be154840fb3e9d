"""Every tiny model is one that the library loads, runs and tells text apart with."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optaned.index import read_index
from optaned.testing.gguf import build_dense, build_moe, build_split
from optaned.testing.kimi_k3 import K3Shape, build_kimi_k3
from optaned.testing.upcycle import upcycle
from optaned.testing.vocabulary import tiny_vocabulary

# Not importorskip: a broken library must fail, only a missing extra may skip.
try:
    import llama_cpp
except ModuleNotFoundError:
    llama_cpp = None

needs_library = pytest.mark.skipif(llama_cpp is None, reason="needs the llama extra")
TEXT = "Grüße, 世界 🌍\n\tand the rest \u2581"


# The library keeps a callback's bare address: it must live as long as the library may speak.
LOG: list[str] = []
_KEEP_LINE = llama_cpp and llama_cpp.llama_log_callback(lambda _level, text, _data: LOG.append(text.decode()))


@pytest.fixture(scope="module", autouse=True)
def _library_log() -> Iterator[None]:
    """Hear what the library says, and give the line back to whom it belonged."""
    if llama_cpp is None:
        yield
        return
    before, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(before), ctypes.byref(data))
    llama_cpp.llama_log_set(_KEEP_LINE, None)
    yield
    llama_cpp.llama_log_set(before, data)


class Loaded:
    """A model through the library's low-level calls: just enough to run it greedily."""

    def __init__(self, path: Path, *, vocabulary_only: bool = False) -> None:
        self.log = LOG
        self.log.clear()
        llama_cpp.llama_backend_init()
        wanted = llama_cpp.llama_model_default_params()
        wanted.n_gpu_layers, wanted.vocab_only = 0, vocabulary_only
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), wanted)
        assert self.model, "".join(self.log)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def tokenize(self, text: str) -> list[int]:
        raw = text.encode()
        found = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), found, len(found), False, True)
        return list(found[:count])

    def text(self, tokens: list[int]) -> bytes:
        parts, room = [], ctypes.create_string_buffer(64)
        for token in tokens:
            length = llama_cpp.llama_token_to_piece(self.vocab, token, room, 64, 0, True)
            parts.append(room.raw[:length])
        return b"".join(parts)

    def generate(self, prompt: str, count: int) -> list[int]:
        """Return `count` greedy tokens; every logit on the way is a number."""
        wanted = llama_cpp.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch, wanted.n_threads = 256, 256, 1
        context = llama_cpp.llama_init_from_model(self.model, wanted)
        assert context, "".join(self.log)
        tokens, answer = self.tokenize(prompt), []
        for _ in range(count):
            ids = (llama_cpp.llama_token * len(tokens))(*tokens)  # the batch points at it and keeps no reference
            assert llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(ids, len(tokens))) == 0
            size = llama_cpp.llama_vocab_n_tokens(self.vocab)
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (size,))
            assert np.isfinite(logits).all()
            tokens = [int(logits.argmax())]
            answer += tokens
        self.can_cut = llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(context), 0, 5, -1)
        llama_cpp.llama_free(context)
        return answer

    def close(self) -> None:
        llama_cpp.llama_model_free(self.model)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    loaded = Loaded(build_dense(tmp_path_factory.mktemp("v") / "m.gguf"), vocabulary_only=True)
    yield loaded
    loaded.close()


def run(path: Path, count: int = 8) -> list[int]:
    loaded = Loaded(path)
    assert loaded.text(loaded.tokenize(TEXT)) == TEXT.encode()
    answer = loaded.generate(TEXT, count)
    loaded.close()
    return answer


@needs_library
@pytest.mark.model
def test_every_kind_of_tiny_model_runs(tmp_path: Path) -> None:
    dense = build_dense(tmp_path / "dense.gguf", seed=3)
    split = build_split(tmp_path / "split.gguf", shards=3, seed=3)
    moe = build_moe(tmp_path / "moe.gguf")
    answer = run(dense)
    assert len(set(answer)) > 1, "a model that repeats one token hides mistakes"
    assert run(split[0]) == answer, "shards hold the same model"
    assert len(set(run(moe))) > 1


@needs_library
@pytest.mark.model
def test_a_miniature_kimi_k3_runs_and_cannot_be_cut(tmp_path: Path) -> None:
    whole = build_kimi_k3(tmp_path / "k3.gguf")
    parts = build_kimi_k3(tmp_path / "parts.gguf", shards=3)
    index = read_index(whole)
    assert (index.architecture, index.expert_count, index.expert_used_count) == ("kimi-k3", 896, 16)
    loaded = Loaded(whole[0])
    answer = loaded.generate(TEXT, 8)
    assert not loaded.can_cut
    loaded.close()
    assert len(parts) == 3
    assert run(parts[0]) == answer


@needs_library
@pytest.mark.model
def test_copied_experts_answer_as_the_dense_model_does(tmp_path: Path) -> None:
    dense = build_dense(tmp_path / "dense.gguf")
    same = upcycle(dense, tmp_path / "same.gguf", experts=4, used=2)
    other = upcycle(dense, tmp_path / "other.gguf", experts=4, used=2, noise=0.3)
    answer = run(dense)
    assert run(same) == answer
    assert run(other) != answer, "with noise, which expert answers makes a difference"


def test_upcycling_keeps_every_expert_byte_for_byte(tmp_path: Path) -> None:
    dense = build_dense(tmp_path / "dense.gguf")
    path = upcycle(dense, tmp_path / "moe.gguf", experts=3, used=1)
    index, before = read_index([path]), {t.name: t for t in gguf.GGUFReader(dense).tensors}
    after = {t.name: t for t in gguf.GGUFReader(path).tensors}
    assert (index.expert_count, index.expert_used_count, index.name) == (3, 1, "tiny dense")
    for expert in range(3):
        np.testing.assert_array_equal(
            after["blk.1.ffn_down_exps.weight"].data[expert], before["blk.1.ffn_down.weight"].data
        )
    np.testing.assert_array_equal(after["output.weight"].data, before["output.weight"].data)
    with pytest.raises(ValueError, match="only a dense llama"):
        upcycle(path, tmp_path / "again.gguf", experts=3, used=1)


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    shape = K3Shape(experts=8, used=2)
    for build in (build_dense, build_moe, lambda path, seed: build_kimi_k3(path, shape=shape, seed=seed)[0]):
        first = build(tmp_path / "a.gguf", seed=7).read_bytes()
        assert build(tmp_path / "b.gguf", seed=7).read_bytes() == first
        assert build(tmp_path / "c.gguf", seed=8).read_bytes() != first


def test_the_vocabulary_spells_every_byte_once() -> None:
    tokens = tiny_vocabulary().tokens
    assert len(set(tokens)) == len(tokens)
    assert len([token for token in tokens if len(token) == 1]) == 256


@needs_library
@pytest.mark.model
@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_survives_tokens(vocabulary: Loaded, text: str) -> None:
    assert vocabulary.text(vocabulary.tokenize(text)) == text.encode()
