"""Heat: how often and how recently the router chose each expert, as decayed counts. Knows no file and no clock but tokens.

A token ago weighs more than an hour ago: every count loses half its weight each `half_life_tokens`. Prefill counts for less:
a chunk reads an expert once however many of its tokens chose it, and what it says about recency does not hold for decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from optaned.placement.arrays import Floats

# Replayed on traces like Kimi K3's, half-lives from 64 to 1,024 tokens are alike while the work stays the same (57 % hits).
# With a profile of other work to begin with, 256 reaches 52 % between tokens 128 and 256, and 1,024 only 46 %.
HALF_LIFE_TOKENS = 256.0
PREFILL_WEIGHT = 0.25


@dataclass(frozen=True, slots=True)
class Heat:
    """What is known of every expert's use. Arrays are float64 over flat expert numbers and never written to.

    `weight` is decayed uses, `last_used` the token number of the last decode use (-inf: never). `weighed_tokens` and
    `squared_tokens` are the sums of the tokens' weights and of their squares; `tokens` is how many were decoded in all.
    """

    weight: Floats
    last_used: Floats
    weighed_tokens: float = 0.0
    squared_tokens: float = 0.0
    tokens: int = 0
    half_life_tokens: float = HALF_LIFE_TOKENS

    @classmethod
    def cold(cls, experts: int, *, half_life_tokens: float = HALF_LIFE_TOKENS) -> Heat:
        """Return the heat of `experts` experts (all layers together) of which nothing is known."""
        return cls(np.zeros(experts), np.full(experts, -np.inf), half_life_tokens=half_life_tokens)

    @property
    def frequency(self) -> Floats:
        """Return decayed uses a token: the row of a layer sums to the experts that a token uses there."""
        return self.weight / self.weighed_tokens if self.weighed_tokens else np.zeros_like(self.weight)

    @property
    def idle_tokens(self) -> Floats:
        """Return how many tokens ago each expert was last chosen while decoding; inf for never."""
        return self.tokens - self.last_used

    def observe(
        self, decode: ArrayLike, tokens: int, prefill: ArrayLike | None = None, prefill_tokens: int = 0
    ) -> Heat:
        """Return the heat after `tokens` decoded and `prefill_tokens` prefilled tokens.

        The counts are arrays of any shape that ravel to flat numbers, such as those of `RouterCounts`.
        """
        heat = self
        if prefill is not None and prefill_tokens:
            heat = heat._weighed(_flat(prefill) * PREFILL_WEIGHT, prefill_tokens, PREFILL_WEIGHT)
        if not tokens:
            return heat
        counts = _flat(decode)
        now = heat.tokens + tokens
        heat = heat._weighed(counts, tokens, 1.0)
        return replace(heat, tokens=now, last_used=np.where(counts > 0, float(now), heat.last_used))

    def followed_by(self, later: Heat) -> Heat:
        """Return both as one: `later` was learned after this. Raises ValueError where they count other experts."""
        if self.weight.size != later.weight.size:
            raise ValueError(f"heat of {self.weight.size} experts and of {later.weight.size} cannot be one")
        kept = 0.5 ** (later.tokens / later.half_life_tokens)
        return Heat(
            self.weight * kept + later.weight,
            np.maximum(self.last_used, later.last_used + self.tokens),
            self.weighed_tokens * kept + later.weighed_tokens,
            self.squared_tokens * kept**2 + later.squared_tokens,
            self.tokens + later.tokens,
            later.half_life_tokens,
        )

    def _weighed(self, uses: Floats, tokens: int, weight: float) -> Heat:
        kept = 0.5 ** (tokens * weight / self.half_life_tokens)
        return replace(
            self,
            weight=self.weight * kept + uses,
            weighed_tokens=self.weighed_tokens * kept + tokens * weight,
            squared_tokens=self.squared_tokens * kept**2 + tokens * weight**2,
        )


def _flat(counts: ArrayLike) -> Floats:
    return np.asarray(counts, dtype=np.float64).ravel()
