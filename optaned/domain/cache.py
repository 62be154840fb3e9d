"""How many bytes a model's state takes for given slots and context: attention's cells and recurrent layers' states.

An upper bound from the header alone: layers with a sliding window are counted in full. Knows the three layouts that
exist: keys and values a head, one compressed latent a token (MLA), and a fixed state a sequence (SSM, KDA).
"""

from __future__ import annotations

from typing import Any

from optaned.domain.model import ModelIndex

# Bits a number takes in the cache, by the names that `kv_cache` may have; the same block sizes as for weights.
CACHE_BITS = {
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "q8_0": 8.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_1": 5.0,
    "q4_0": 4.5,
    "iq4_nl": 4.5,
}
_STATE_BYTES = 4


def cache_bytes(index: ModelIndex, *, context: int, slots: int, kv_cache: str = "f16") -> int:
    """Return the bytes that `slots` sequences of `context` tokens need. Raises KeyError for an unknown `kv_cache`."""
    model = _Model(index)
    per_token = sum(model.cell_numbers(layer) for layer in range(index.layers)) * CACHE_BITS[kv_cache] / 8
    per_slot = sum(model.state_numbers(layer) for layer in range(index.layers)) * _STATE_BYTES
    return slots * (int(per_token * context) + per_slot)


class _Model:
    """The header's numbers under the names that the arithmetic uses."""

    def __init__(self, index: ModelIndex) -> None:
        self._index = index
        self.heads = self.number("attention.head_count")
        self.width = self.number("embedding_length")
        self.latent = self.number("attention.kv_lora_rank")
        self.interval = self.number("full_attention_interval")

    def number(self, key: str, *, layer: int = 0, default: int = 0) -> int:
        value: Any = self._index.metadata.get(f"{self._index.architecture}.{key}", default)
        if isinstance(value, tuple):
            value = value[layer] if layer < len(value) else default
        return int(value) if isinstance(value, (int, float)) else default

    def is_recurrent(self, layer: int) -> bool:
        if self.interval:
            return (layer + 1) % self.interval != 0
        return self._kv_heads(layer) == 0

    def cell_numbers(self, layer: int) -> int:
        """Return the numbers that one token leaves in this layer's cache."""
        if self.is_recurrent(layer):
            return 0
        if self.latent and self.number("attention.key_length_mla"):
            return self.latent + self.number("rope.dimension_count", layer=layer)
        head = self.width // self.heads if self.heads else 0
        keys = self.number("attention.key_length", default=head)
        return self._kv_heads(layer) * (keys + self.number("attention.value_length", default=head))

    def state_numbers(self, layer: int) -> int:
        """Return the numbers that one sequence's state takes in this layer, whatever its length."""
        if not self.is_recurrent(layer):
            return 0
        window = max(self.number("ssm.conv_kernel") - 1, 0)
        if head := self.number("kda.head_dim"):
            inner = head * self.number("attention.head_count", layer=layer)
            return head * inner + 3 * window * inner
        state, inner = self.number("ssm.state_size"), self.number("ssm.inner_size")
        return state * inner + window * (inner + 2 * self.number("ssm.group_count") * state)

    def _kv_heads(self, layer: int) -> int:
        return self.number("attention.head_count_kv", layer=layer, default=self.heads)
