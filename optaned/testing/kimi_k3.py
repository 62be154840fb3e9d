"""Kimi K3 in miniature: the real architecture (KDA and MLA layers, latent experts, cross-layer residuals), toy widths.

Built for what makes K3 different to serve: a state that cannot be cut at a position, 896 experts of which 16 answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optaned.testing.gguf import Blueprint, Draw, Weights, write_gguf
from optaned.testing.vocabulary import tiny_vocabulary


@dataclass(frozen=True)
class K3Shape:
    """Widths of a miniature. Every `mla_every`-th layer is MLA, the others KDA; the first layer is dense."""

    layers: int = 4
    width: int = 128
    heads: int = 2
    experts: int = 896
    used: int = 16
    shared: int = 2
    latent: int = 32
    expert_inner: int = 32
    kda_head: int = 32
    query_rank: int = 32
    cache_rank: int = 32
    key_length: int = 48
    rope_length: int = 16
    value_length: int = 32
    mla_every: int = 4
    context: int = 4096

    @property
    def kda_inner(self) -> int:
        return self.kda_head * self.heads

    def is_mla(self, layer: int) -> bool:
        """Say whether a layer keeps a cell a token; the others keep a state of fixed size."""
        return layer % self.mla_every == self.mla_every - 1


def build_kimi_k3(path: Path, *, shape: K3Shape | None = None, seed: int = 0, shards: int = 1) -> tuple[Path, ...]:
    """Write a miniature Kimi K3 (about 19 MB with 896 experts) and return its shards' paths."""
    shape = shape or K3Shape()
    draw, vocabulary = Draw(seed), tiny_vocabulary()
    tensors = {
        "token_embd.weight": draw.matrix(shape.width, vocabulary.size, gain=np.sqrt(shape.width)),
        "output_norm.weight": draw.vector(shape.width),
        "output.weight": draw.matrix(shape.width, vocabulary.size, gain=4.0),
        "output_res_score.weight": draw.vector(shape.width, mean=0.0),
    }
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        tensors |= _norms(draw, block, shape)
        tensors |= _mla(draw, block, shape) if shape.is_mla(layer) else _kda(draw, block, shape)
        tensors |= _experts(draw, block, shape) if layer else _dense(draw, block, shape)
    keys = {"general.name": "tiny kimi-k3", "general.file_type": 1}
    return write_gguf(path, Blueprint("kimi-k3", keys, tensors, _keys(shape, vocabulary.size)), shards=shards)


def _keys(shape: K3Shape, vocabulary: int) -> dict[str, object]:
    return {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.width,
        "feed_forward_length": shape.width * 2,
        "vocab_size": vocabulary,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": [int(shape.is_mla(layer)) for layer in range(shape.layers)],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.key_length": shape.cache_rank + shape.rope_length,
        "attention.value_length": shape.cache_rank,
        "attention.key_length_mla": shape.key_length,
        "attention.value_length_mla": shape.value_length,
        "attention.q_lora_rank": shape.query_rank,
        "attention.kv_lora_rank": shape.cache_rank,
        "rope.dimension_count": shape.rope_length,
        "ssm.conv_kernel": 4,
        "kda.head_dim": shape.kda_head,
        "kda.gate_lower_bound": -5.0,
        "leading_dense_block_count": 1,
        "expert_count": shape.experts,
        "expert_used_count": shape.used,
        "expert_shared_count": shape.shared,
        "expert_feed_forward_length": shape.expert_inner,
        "expert_latent_length": shape.latent,
        "expert_gating_func": 2,
        "expert_weights_norm": True,
        "expert_weights_scale": 1.0,
        "attn_res.block_size": 2,
        "activation.situ_beta": 4.0,
        "activation.situ_linear_beta": 25.0,
    }


def _norms(draw: Draw, block: str, shape: K3Shape) -> dict[str, Weights]:
    return {
        f"{block}.attn_norm.weight": draw.vector(shape.width),
        f"{block}.ffn_norm.weight": draw.vector(shape.width),
        f"{block}.attn_res_score.weight": draw.vector(shape.width, mean=0.0),
        f"{block}.ffn_res_score.weight": draw.vector(shape.width, mean=0.0),
    }


def _kda(draw: Draw, block: str, shape: K3Shape) -> dict[str, Weights]:
    width, inner = shape.width, shape.kda_inner
    tensors = {
        f"{block}.ssm_f_a.weight": draw.matrix(width, shape.kda_head),
        f"{block}.ssm_f_b.weight": draw.matrix(shape.kda_head, inner),
        f"{block}.ssm_beta.weight": draw.matrix(width, shape.heads),
        # The loader takes it as it is, and a state that does not decay grows without end: it must be negative.
        f"{block}.ssm_a": -np.abs(draw.vector(shape.heads)),
        f"{block}.ssm_dt.bias": draw.vector(inner, mean=0.0),
        f"{block}.ssm_g.weight": draw.matrix(width, inner),
        f"{block}.ssm_norm.weight": draw.vector(shape.kda_head),
        f"{block}.attn_output.weight": draw.matrix(inner, width),
    }
    for part in "qkv":
        tensors[f"{block}.attn_{part}.weight"] = draw.matrix(width, inner)
        tensors[f"{block}.ssm_conv1d_{part}.weight"] = draw.matrix(4, inner).reshape(1, inner, 1, 4)
    return tensors


def _mla(draw: Draw, block: str, shape: K3Shape) -> dict[str, Weights]:
    width, heads, rank = shape.width, shape.heads, shape.cache_rank
    return {
        f"{block}.attn_q_a.weight": draw.matrix(width, shape.query_rank),
        f"{block}.attn_q_a_norm.weight": draw.vector(shape.query_rank),
        f"{block}.attn_q_b.weight": draw.matrix(shape.query_rank, heads * shape.key_length),
        f"{block}.attn_kv_a_mqa.weight": draw.matrix(width, rank + shape.rope_length),
        f"{block}.attn_kv_a_norm.weight": draw.vector(rank),
        f"{block}.attn_k_b.weight": draw.matrix(shape.key_length - shape.rope_length, rank, count=heads),
        f"{block}.attn_v_b.weight": draw.matrix(rank, shape.value_length, count=heads),
        f"{block}.attn_gate.weight": draw.matrix(width, heads * shape.value_length),
        f"{block}.attn_output.weight": draw.matrix(heads * shape.value_length, width),
    }


def _dense(draw: Draw, block: str, shape: K3Shape) -> dict[str, Weights]:
    inner = shape.width * 2
    return {
        f"{block}.ffn_gate.weight": draw.matrix(shape.width, inner),
        f"{block}.ffn_up.weight": draw.matrix(shape.width, inner),
        f"{block}.ffn_down.weight": draw.matrix(inner, shape.width),
    }


def _experts(draw: Draw, block: str, shape: K3Shape) -> dict[str, Weights]:
    width, latent, inner, count = shape.width, shape.latent, shape.expert_inner, shape.experts
    shared = inner * shape.shared
    return {
        f"{block}.ffn_gate_inp.weight": draw.matrix(width, count, gain=3.0),
        f"{block}.exp_probs_b.bias": draw.vector(count, mean=0.0),
        f"{block}.ffn_gate_exps.weight": draw.matrix(latent, inner, count=count),
        f"{block}.ffn_up_exps.weight": draw.matrix(latent, inner, count=count),
        f"{block}.ffn_down_exps.weight": draw.matrix(inner, latent, count=count),
        f"{block}.ffn_routed_down.weight": draw.matrix(width, latent),
        f"{block}.ffn_routed_up.weight": draw.matrix(latent, width),
        f"{block}.ffn_routed_norm.weight": draw.vector(latent),
        f"{block}.ffn_gate_shexp.weight": draw.matrix(width, shared),
        f"{block}.ffn_up_shexp.weight": draw.matrix(width, shared),
        f"{block}.ffn_down_shexp.weight": draw.matrix(shared, width),
    }
