"""Traces of router choices: made up to match what was measured on real routers, or put together from recorded ones.

An expert's chance is the sum of three parts: a lasting one (what this router and this work prefer), a passing one (what
the text is about just now) and noise. The parts' shares set skew and reuse. `k3_trace` matches what was measured on Kimi K3
(about 30 % reuse from token to token; an LRU of 9.5 % of the experts answers for about 56 %) and is never more skewed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optaned.domain.model import ByteRange, Group, ModelIndex, Shard, Tensor

HOME_MOUNT = Path("/home-tier")


@dataclass(frozen=True)
class Trace:
    """Which experts each token used: `choices[token, row, place]` is an expert's number within its layer's row."""

    choices: NDArray[np.int64]
    experts: int
    expert_bytes: int = 1 << 20

    @property
    def tokens(self) -> int:
        return int(self.choices.shape[0])

    @property
    def layers(self) -> int:
        return int(self.choices.shape[1])

    @property
    def used(self) -> int:
        return int(self.choices.shape[2])

    @property
    def flat(self) -> NDArray[np.int64]:
        """Return flat expert numbers, one row a token."""
        rows = np.arange(self.layers, dtype=np.int64)[None, :, None] * self.experts
        return np.asarray((self.choices + rows).reshape(self.tokens, -1))

    @property
    def reuse(self) -> float:
        """Return the share of a token's experts that the token before used too."""
        same = (self.choices[1:, :, :, None] == self.choices[:-1, :, None, :]).any(axis=3)
        return float(same.mean())

    def index(self) -> ModelIndex:
        """Return a model of nothing but these experts, whose only shard lies on the mount HOME_MOUNT."""
        layer_bytes = self.experts * self.expert_bytes
        tensors = tuple(
            Tensor(
                f"blk.{row}.ffn_down_exps.weight",
                (self.expert_bytes, self.experts),
                "I8",
                ByteRange(0, row * layer_bytes, layer_bytes),
                row,
                Group.EXPERT,
            )
            for row in range(self.layers)
        )
        shard = Shard(HOME_MOUNT / "trace.gguf", self.layers * layer_bytes, 0)
        return ModelIndex("trace", "trace", (shard,), tensors, "trace", self.layers, self.experts, self.used)


def make_trace(
    *,
    tokens: int,
    layers: int,
    experts: int,
    used: int,
    lasting: float,
    passing: float = 0.0,
    passing_tokens: float = 1.0,
    drift_tokens: float = 2000.0,
    seed: int = 0,
) -> Trace:
    """Return a made-up trace. `lasting` and `passing` are shares of the variance of an expert's chance, the rest is noise.

    The passing part halves in `passing_tokens`, the lasting one in `drift_tokens`. Both 0 is a uniform router.
    """
    if lasting < 0 or passing < 0 or lasting + passing > 1:
        raise ValueError(f"shares of variance: {lasting} + {passing} is more than 1, or one is below 0")
    rng = np.random.default_rng(seed)
    shape = (layers, experts)
    taste, topic = rng.standard_normal(shape), rng.standard_normal(shape)
    stay, keep = 0.5 ** (1 / drift_tokens), 0.5 ** (1 / passing_tokens)
    noise = np.sqrt(1 - lasting - passing)
    chosen = np.empty((tokens, layers, used), dtype=np.int64)
    for token in range(tokens):
        taste = stay * taste + np.sqrt(1 - stay**2) * rng.standard_normal(shape)
        topic = keep * topic + np.sqrt(1 - keep**2) * rng.standard_normal(shape)
        chance = np.sqrt(lasting) * taste + np.sqrt(passing) * topic + noise * rng.standard_normal(shape)
        chosen[token] = np.argpartition(-chance, used - 1, axis=1)[:, :used]
    return Trace(chosen, experts)


def k3_trace(*, tokens: int = 256, layers: int = 4, experts: int = 896, used: int = 16, seed: int = 0) -> Trace:
    """Return a low-skew trace like Kimi K3's, of fewer layers (they behave alike)."""
    return make_trace(
        tokens=tokens,
        layers=layers,
        experts=experts,
        used=used,
        lasting=0.38,
        passing=0.56,
        passing_tokens=1.3,
        seed=seed,
    )


def skewed_trace(*, tokens: int = 256, layers: int = 4, experts: int = 128, used: int = 8, seed: int = 0) -> Trace:
    """Return a trace of a router with lasting favourites: its hottest tenth answers for about two thirds of the uses."""
    return make_trace(
        tokens=tokens,
        layers=layers,
        experts=experts,
        used=used,
        lasting=0.75,
        passing=0.1,
        passing_tokens=4.0,
        seed=seed,
    )


def uniform_trace(*, tokens: int = 256, layers: int = 4, experts: int = 128, used: int = 8, seed: int = 0) -> Trace:
    """Return a trace of a router that prefers nothing: the null that every figure is compared with."""
    return make_trace(tokens=tokens, layers=layers, experts=experts, used=used, lasting=0.0, seed=seed)


def read_trace(path: Path, *, expert_bytes: int = 1 << 20) -> Trace:
    """Return a trace that `optanectl trace record` wrote. Raises ValueError for a file that holds none."""
    with path.open(encoding="utf-8") as file:
        said = [json.loads(line) for line in file]
    if not said or "experts" not in said[0]:
        raise ValueError(f"{path}: the first line does not say how many experts there are")
    choices = ((int(layer), tuple(ids)) for line in said for layer, ids in line.get("choices", ()))
    return trace_of(choices, experts=int(said[0]["experts"]), expert_bytes=expert_bytes)


def trace_of(choices: Iterable[tuple[int, tuple[int, ...]]], *, experts: int, expert_bytes: int = 1 << 20) -> Trace:
    """Return recorded choices, (layer, expert ids) in the order of decoding, as a trace.

    A token ends where its first layer comes again; an unfinished last token is left out. Raises ValueError for choices that
    make no tokens of the same layers.
    """
    tokens: list[list[tuple[int, ...]]] = []
    layers: list[list[int]] = []
    for layer, ids in choices:
        if not tokens or layer == layers[0][0]:
            tokens.append([])
            layers.append([])
        tokens[-1].append(ids)
        layers[-1].append(layer)
    if tokens and layers[-1] != layers[0] and layers[-1] == layers[0][: len(layers[-1])]:
        tokens.pop()
        layers.pop()
    if not tokens or any(each != layers[0] for each in layers):
        raise ValueError("these choices do not repeat the same layers token by token; record one sequence at a time")
    return Trace(np.asarray(tokens, dtype=np.int64), experts, expert_bytes)
