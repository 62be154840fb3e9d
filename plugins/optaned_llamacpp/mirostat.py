"""Mirostat 1 and 2: keep the surprise of chosen tokens near a target. Knows probabilities and one random number each.

Written out here because the library's samplers own their random numbers, and ours derive from (seed, position). The
running maximum `mu` depends on what was chosen before: the one chooser that is no function of logits and position.
Nothing is sorted but the likeliest hundred: sorting a whole vocabulary takes 9 ms a token.
"""

from __future__ import annotations

import math

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
        probabilities = _softmax(logits)
        if self._version == 1:
            kept = _likeliest(probabilities, _count_by_slope(probabilities, self.mu))
        else:
            kept = np.flatnonzero(probabilities >= 2.0**-self.mu)
        if len(kept) == 0:
            kept = np.array([probabilities.argmax()])
        head = probabilities[kept] / probabilities[kept].sum()
        pick = min(int(np.searchsorted(np.cumsum(head), uniform, side="right")), len(kept) - 1)
        return int(kept[pick]), -math.log2(head[pick])

    def learn(self, surprise: float) -> None:
        """Move `mu` after a token of this surprise (bits) was chosen."""
        self.mu -= self._eta * (surprise - self._tau)


def _count_by_slope(probabilities: _Array, mu: float) -> int:
    """Return how many tokens to keep, assuming that probability falls with a power of the rank (Zipf)."""
    head = np.sort(probabilities[_likeliest(probabilities, _LIKELIEST)])[::-1]
    head = head[head > 0]
    if len(head) < 2:
        return 1
    ranks = np.arange(1, len(head))
    distance = np.log((ranks + 1) / ranks)
    slope = float((distance * np.log(head[:-1] / head[1:])).sum() / (distance * distance).sum())
    excess = slope - 1
    if slope <= 0 or excess == 0:
        return len(probabilities)
    spread = excess * 2.0**mu / (1 - float(len(probabilities)) ** -excess)
    return max(1, min(len(probabilities), int(float(spread ** (1 / slope)))))


def _likeliest(probabilities: _Array, count: int) -> npt.NDArray[np.intp]:
    """Return the indices of the `count` likeliest, by index: the draw must not depend on how a partition falls."""
    if count >= len(probabilities):
        return np.arange(len(probabilities))
    return np.sort(np.argpartition(-probabilities, count - 1)[:count])


def _softmax(logits: npt.NDArray[np.float32]) -> _Array:
    weights: _Array = np.exp(logits.astype(np.float64) - logits.max())
    weights /= weights.sum()
    return weights
