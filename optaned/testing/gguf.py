"""Tiny GGUF models with random weights that llama.cpp really loads and runs. Written in milliseconds, no download.

Dense and mixture-of-experts llama models, whole or split; `kimi_k3` beside this file builds on the same parts. The
answers are noise, but the same noise for the same seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from optaned.testing.vocabulary import CHAT_TEMPLATE, tiny_vocabulary

Weights = NDArray[np.float32]
# Sharpens the last layer, so that greedy decoding has clear winners and sampling is not uniform.
_OUTPUT_GAIN = 4.0


@dataclass(frozen=True)
class Blueprint:
    """A model before it is written: keys without the architecture's prefix where `general.*` and the like need none."""

    architecture: str
    keys: Mapping[str, Any]
    tensors: Mapping[str, Weights]
    own_keys: Mapping[str, Any] = field(default_factory=dict)


class Draw:
    """Random weights of the size that keeps activations near one."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def matrix(self, inputs: int, outputs: int, *, count: int | None = None, gain: float = 1.0) -> Weights:
        """Return `outputs` rows of `inputs` numbers, `count` such matrices if given."""
        shape = (outputs, inputs) if count is None else (count, outputs, inputs)
        drawn = self._rng.standard_normal(shape, dtype=np.float32)
        return drawn * np.float32(gain / np.sqrt(inputs))

    def vector(self, length: int, *, mean: float = 1.0, spread: float = 0.1) -> Weights:
        """Return numbers around a mean, for norms and biases."""
        return (mean + spread * self._rng.standard_normal(length)).astype(np.float32)


def build_dense(
    path: Path, *, layers: int = 2, width: int = 64, context: int = 4096, seed: int = 0, name: str = "tiny dense"
) -> Path:
    """Write a dense llama model of about 0.2 MB and return its path. `width` is a multiple of 32."""
    return write_gguf(path, _llama(layers=layers, width=width, context=context, seed=seed, name=name))[0]


def build_moe(
    path: Path,
    *,
    experts: int = 8,
    used: int = 2,
    layers: int = 2,
    width: int = 64,
    context: int = 4096,
    seed: int = 0,
    name: str = "tiny moe",
) -> Path:
    """Write a llama model whose every layer has `experts` routed experts, `used` of them a token; return its path."""
    model = _llama(layers=layers, width=width, context=context, seed=seed, name=name, experts=experts, used=used)
    return write_gguf(path, model)[0]


def build_split(
    path: Path, *, shards: int = 3, experts: int = 0, layers: int = 2, width: int = 64, seed: int = 0
) -> tuple[Path, ...]:
    """Write a dense (or with `experts` a MoE) model as several shards and return their paths, in order.

    `path` ends in ".gguf"; the shards are called `…-00001-of-00003.gguf` and so on.
    """
    model = _llama(
        layers=layers, width=width, context=4096, seed=seed, name="tiny split", experts=experts, used=min(2, experts)
    )
    return write_gguf(path, model, shards=shards)


def write_gguf(path: Path, model: Blueprint, *, shards: int = 1) -> tuple[Path, ...]:
    """Write a model with the tiny vocabulary: matrices as F16, vectors and routers as F32. Return the shards' paths."""
    per_shard = -(-len(model.tensors) // shards) if shards > 1 else 0
    writer = gguf.GGUFWriter(path, model.architecture, split_max_tensors=per_shard)
    for key, value in model.keys.items():
        add_key(writer, key, value)
    for key, value in model.own_keys.items():
        add_key(writer, f"{model.architecture}.{key}", value)
    _add_vocabulary(writer)
    for name, weights in model.tensors.items():
        writer.add_tensor(name, weights.astype(np.float16) if _is_half(name, weights) else weights)
    written = writer.format_shard_names(path)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tuple(Path(each) for each in written)


def add_key(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Add a key with the GGUF type that llama.cpp expects of a Python value: integers are 32 bits wide."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _is_half(name: str, weights: Weights) -> bool:
    """Routers and convolutions stay in full precision, as converters leave them."""
    return weights.ndim > 1 and "ffn_gate_inp" not in name and "conv1d" not in name


def _llama(
    *, layers: int, width: int, context: int, seed: int, name: str, experts: int = 0, used: int = 0
) -> Blueprint:
    draw, vocabulary = Draw(seed), tiny_vocabulary()
    heads, inner = width // 16, width * 2
    tensors = {
        "token_embd.weight": draw.matrix(width, vocabulary.size, gain=np.sqrt(width)),
        "output_norm.weight": draw.vector(width),
        "output.weight": draw.matrix(width, vocabulary.size, gain=_OUTPUT_GAIN),
    }
    for layer in range(layers):
        tensors |= _attention(draw, f"blk.{layer}", width)
        tensors |= _feed_forward(draw, f"blk.{layer}", width, inner, experts)
    own = {
        "block_count": layers,
        "context_length": context,
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": heads // 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": 16,
        "rope.freq_base": 10000.0,
        "vocab_size": vocabulary.size,
    }
    if experts:
        own |= {"expert_count": experts, "expert_used_count": used}
    return Blueprint("llama", {"general.name": name, "general.file_type": 1}, tensors, own)


def _attention(draw: Draw, block: str, width: int) -> dict[str, Weights]:
    return {
        f"{block}.attn_norm.weight": draw.vector(width),
        f"{block}.attn_q.weight": draw.matrix(width, width),
        f"{block}.attn_k.weight": draw.matrix(width, width // 2),
        f"{block}.attn_v.weight": draw.matrix(width, width // 2),
        f"{block}.attn_output.weight": draw.matrix(width, width),
        f"{block}.ffn_norm.weight": draw.vector(width),
    }


def _feed_forward(draw: Draw, block: str, width: int, inner: int, experts: int) -> dict[str, Weights]:
    if not experts:
        return {
            f"{block}.ffn_gate.weight": draw.matrix(width, inner),
            f"{block}.ffn_up.weight": draw.matrix(width, inner),
            f"{block}.ffn_down.weight": draw.matrix(inner, width),
        }
    return {
        f"{block}.ffn_gate_inp.weight": draw.matrix(width, experts, gain=3.0),
        f"{block}.ffn_gate_exps.weight": draw.matrix(width, inner, count=experts),
        f"{block}.ffn_up_exps.weight": draw.matrix(width, inner, count=experts),
        f"{block}.ffn_down_exps.weight": draw.matrix(inner, width, count=experts),
    }


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    vocabulary = tiny_vocabulary()
    end, start = vocabulary.id("<|im_end|>"), vocabulary.id("<|endoftext|>")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.types))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_bos_token_id(start)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(start)
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(CHAT_TEMPLATE)
