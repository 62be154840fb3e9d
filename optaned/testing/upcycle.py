"""A mixture of experts made from a dense model: every expert is a copy of the layer's feed-forward part.

The answers stay those of the dense model but for rounding, so that real text comes out of a model with a router. With
`noise` the experts differ, and a test notices a wrong one. Tensors are copied in the type they have, one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

_FEED_FORWARD = re.compile(r"(blk\.\d+)\.(ffn_gate|ffn_up|ffn_down)\.weight")
# Written by the writer itself, or true of the dense file only.
_LEFT_OUT = ("GGUF.", "general.architecture", "split.")


def upcycle(
    dense: Path, out: Path, *, experts: int, used: int, seed: int = 0, noise: float = 0.0, skew: float = 1.0
) -> Path:
    """Write `out`, a MoE llama model made from the dense llama model `dense`, and return its path.

    `noise` is the share of each tensor's spread that is added to an expert's weights (0 copies bytes, and works for
    every type); `skew` is how much likelier the router's favourites are (0: all alike). Raises ValueError for a model
    that is not a dense llama, and for a type that cannot be quantised anew.
    """
    reader = gguf.GGUFReader(dense)
    architecture = reader.fields["general.architecture"].contents()
    if architecture != "llama" or "llama.expert_count" in reader.fields:
        raise ValueError(f"{dense}: only a dense llama model can be upcycled, this is {architecture!r}")
    writer = gguf.GGUFWriter(out, "llama")
    for name, field in reader.fields.items():
        if not name.startswith(_LEFT_OUT):
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(used)
    _write(writer, reader, _Router(experts, seed, noise, skew))
    return out


class _Router:
    """What is random about an upcycled model."""

    def __init__(self, experts: int, seed: int, noise: float, skew: float) -> None:
        self.experts = experts
        self._noise = noise
        self._skew = skew
        self._rng = np.random.default_rng(seed)

    def rows(self, width: int) -> NDArray[np.float32]:
        """Return router weights: a longer row wins more often."""
        lengths = 1 + self._skew * self._rng.exponential(size=(self.experts, 1))
        drawn = self._rng.standard_normal((self.experts, width)) * lengths / np.sqrt(width)
        return np.asarray(drawn, dtype=np.float32)

    def copies(self, tensor: Any) -> Iterator[NDArray[Any]]:
        """Yield each expert's bytes, in the type of the dense tensor."""
        if not self._noise:
            yield from [tensor.data] * self.experts
            return
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        spread = self._noise * float(weights.std())
        for _ in range(self.experts):
            drawn = self._rng.standard_normal(weights.shape, dtype=np.float32) * np.float32(spread)
            try:
                yield gguf.quantize(weights + drawn, tensor.tensor_type)
            except NotImplementedError:
                kind = tensor.tensor_type.name
                raise ValueError(f"{tensor.name}: {kind} cannot be quantised here; upcycle with noise=0") from None


def _write(writer: gguf.GGUFWriter, reader: Any, router: _Router) -> None:
    """Announce all tensors, then stream their data in the same order: 64 experts of a small model are 3 GB."""
    plan = []
    width = int(reader.fields["llama.embedding_length"].contents())
    for tensor in reader.tensors:
        match = _FEED_FORWARD.fullmatch(tensor.name)
        name = f"{match[1]}.{match[2]}_exps.weight" if match else tensor.name
        copies = router.experts if match else 1
        shape = (copies, *tensor.data.shape) if match else tensor.data.shape
        writer.add_tensor_info(name, shape, tensor.data.dtype, tensor.data.nbytes * copies, tensor.tensor_type)
        plan.append((tensor, bool(match)))
        if match and match[2] == "ffn_gate":
            rows = (router.experts, width)
            writer.add_tensor_info(f"{match[1]}.ffn_gate_inp.weight", rows, np.dtype(np.float32), 4 * rows[0] * rows[1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor, is_feed_forward in plan:
        parts = list(router.copies(tensor)) if is_feed_forward else [tensor.data]
        writer.write_tensor_data(np.stack(parts) if is_feed_forward else parts[0])
        if is_feed_forward and ".ffn_gate." in tensor.name:
            writer.write_tensor_data(router.rows(width))
    writer.close()
