"""Mirostat 1 and 2: keep the surprise of chosen tokens near a target. Knows probabilities and one random number each.

Written out here because the library's samplers own their random numbers, and ours derive from (seed, position). The
running maximum `mu` depends on what was chosen before: the one chooser that is no function of logits and position.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

_LIKELIEST = 100  # tokens from which mirostat 1 estimates the slope of the distribution
_Array = npt.NDArray[np.float64]


class Mirostat:
    """The state of one answer. `choose` returns an index into the candidates it was given."""

    def __init__(self, version: int, tau: float, eta: float) -> None:
        self._version = version
        self._tau = tau
        self._eta = eta
        self.mu = 2 * tau

    def choose(self, logits: npt.NDArray[np.float32], uniform: float) -> tuple[int, float]:
        """Return the index of the chosen logit and its surprise in bits; `uniform` is in [0, 1)."""
        order = np.argsort(-logits, kind="stable")
        probabilities = _softmax(logits[order].astype(np.float64))
        kept = self._keep(probabilities)
        head = probabilities[:kept] / probabilities[:kept].sum()
        pick = min(int(np.searchsorted(np.cumsum(head), uniform, side="right")), kept - 1)
        return int(order[pick]), -math.log2(head[pick])

    def learn(self, surprise: float) -> None:
        """Move `mu` after a token of this surprise (bits) was chosen."""
        self.mu -= self._eta * (surprise - self._tau)

    def _keep(self, probabilities: _Array) -> int:
        if self._version == 1:
            return _keep_by_slope(probabilities, self.mu)
        with np.errstate(divide="ignore"):
            surprising = -np.log2(probabilities) > self.mu
        return max(int(np.argmax(surprising)) if surprising.any() else len(probabilities), 1)


def _keep_by_slope(probabilities: _Array, mu: float) -> int:
    head = probabilities[:_LIKELIEST]
    head = head[head > 0]
    if len(head) < 2:
        return 1
    ranks = np.arange(1, len(head))
    distance = np.log((ranks + 1) / ranks)
    slope = float((distance * np.log(head[:-1] / head[1:])).sum() / (distance * distance).sum())
    excess = slope - 1
    if slope <= 0 or excess == 0:
        return len(probabilities)
    spread: Any = excess * 2**mu / (1 - float(len(probabilities)) ** -excess)
    return max(1, min(len(probabilities), int(spread ** (1 / slope))))


def _softmax(logits: _Array) -> _Array:
    weights: _Array = np.exp(logits - logits[0])
    weights /= weights.sum()
    return weights
