"""The cache's size from a header alone, held against what is known of real and of tiny models."""

from __future__ import annotations

from typing import Any

import pytest

from optaned.domain.cache import cache_bytes
from optaned.domain.model import ModelIndex


def index_of(architecture: str, layers: int, **keys: Any) -> ModelIndex:
    metadata = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return ModelIndex(architecture, "", (), (), "", layers, metadata=metadata)


SMOLLM2 = index_of(
    "llama", 30, embedding_length=576, attention__head_count=9, attention__head_count_kv=3, rope__dimension_count=64
)
KIMI_K3 = index_of(
    "kimi-k3",
    93,
    embedding_length=7168,
    attention__head_count=96,
    attention__head_count_kv=tuple(int(layer % 4 == 3 or layer == 92) for layer in range(93)),
    attention__kv_lora_rank=512,
    attention__key_length_mla=192,
    attention__key_length=576,
    rope__dimension_count=64,
    ssm__conv_kernel=4,
    kda__head_dim=128,
)


def test_grouped_heads_cost_keys_and_values() -> None:
    assert cache_bytes(SMOLLM2, context=1, slots=1) == 30 * 3 * 2 * 64 * 2
    assert cache_bytes(SMOLLM2, context=100, slots=4) == 400 * 23_040
    assert cache_bytes(SMOLLM2, context=100, slots=1, kv_cache="q8_0") == 100 * 30 * 3 * 2 * 64 * 17 // 16


def test_kimi_k3_costs_a_latent_a_token_and_a_state_a_slot() -> None:
    token = cache_bytes(KIMI_K3, context=2, slots=1) - cache_bytes(KIMI_K3, context=1, slots=1)
    assert token == 27_648
    state = cache_bytes(KIMI_K3, context=0, slots=1)
    assert state == pytest.approx(450e6, rel=0.05)
    assert cache_bytes(KIMI_K3, context=0, slots=3) == 3 * state


def test_interleaved_layers_go_by_their_interval() -> None:
    hybrid = index_of(
        "qwen3next",
        8,
        embedding_length=64,
        attention__head_count=4,
        attention__head_count_kv=2,
        full_attention_interval=4,
        ssm__state_size=16,
        ssm__inner_size=32,
        ssm__conv_kernel=4,
        ssm__group_count=2,
    )
    assert cache_bytes(hybrid, context=1, slots=1) == 2 * 2 * 32 * 2 + 6 * 4 * (16 * 32 + 3 * (32 + 64))


def test_an_unknown_cache_type_is_an_error() -> None:
    with pytest.raises(KeyError):
        cache_bytes(SMOLLM2, context=1, slots=1, kv_cache="f12")
