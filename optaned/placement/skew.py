"""How far the router is from choosing all experts alike, told apart from the noise that chance makes.

A token uses k of E experts. Were all alike, an expert's uses in T tokens would still scatter: variance T p (1 - p) with
p = k/E. What scatters more than that is skew. Near the null no choice of experts is better than another, and exchanging them
only costs bandwidth: others pinned the "hottest" half of a uniform router and gained nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optaned.placement.arrays import Floats
from optaned.placement.heat import Heat

# A spread of true probabilities of 15 % of their mean lets the best tenth of the experts answer for 12.5 % of the uses
# instead of 10 %: below that, exchanging experts is not worth its bandwidth.
LEAST_SPREAD = 0.15
# Standard deviations of chance. Uses of neighbouring tokens are not independent, so the customary 3 would be too few.
LEAST_SIGMAS = 5.0
# An expert must have been up for choice often enough for its frequency to mean something.
LEAST_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Skew:
    """A router's skew. `value` 0 is the uniform null and 1 is always the same experts; `sigmas` is how sure it is.

    `spread` is the standard deviation of the experts' true probabilities over their mean; `kept` is the share of the measured
    scatter that is skew and not chance (0 to 1).
    """

    value: float
    spread: float
    sigmas: float
    kept: float
    tokens: int

    @property
    def known(self) -> bool:
        return self.tokens >= LEAST_TOKENS

    @property
    def near_uniform(self) -> bool:
        """Say whether it is known that experts are chosen almost alike."""
        return self.known and (self.spread < LEAST_SPREAD or self.sigmas < LEAST_SIGMAS)

    @property
    def exchanges_pay(self) -> bool:
        """Say whether a hotter expert may push a colder one out."""
        return self.known and not self.near_uniform

    @property
    def sentence(self) -> str:
        """Return in one line for people why experts move or do not."""
        if not self.known:
            return (
                f"experts fill free room; too little is known to exchange them ({self.tokens} of {LEAST_TOKENS} tokens)"
            )
        measured = f"skew {self.value:.3f}, {self.sigmas:.0f} sigmas from uniform, {self.tokens} tokens"
        if self.near_uniform:
            return f"expert moves are off: the router chooses all experts almost alike ({measured})"
        return f"experts move by heat ({measured})"


def measure_skew(heat: Heat, *, layers: int, used: int) -> Skew:
    """Return the skew of a model with `layers` rows of experts, of which a token uses `used` each."""
    experts = heat.weight.size // layers if layers else 0
    weight, squared = heat.weighed_tokens, heat.squared_tokens
    # Unbiased estimates need more weight than a single token's.
    if not 0 < used < experts or weight**2 <= squared:
        return Skew(0.0, 0.0, 0.0, 0.0, heat.tokens)
    chance = used / experts
    noise = squared * chance * (1 - chance)
    scatter = float(np.mean(_centred(heat.weight, layers) ** 2))
    excess = max(0.0, scatter - noise)
    # The mean of n squared deviations of one variance scatters by sqrt(2 / n) of it.
    sigmas = excess / (noise * np.sqrt(2 / heat.weight.size))
    spread = float(np.sqrt(excess / (weight**2 - squared))) / chance
    largest = float(np.sqrt(1 / chance - 1))
    return Skew(min(1.0, spread / largest), spread, float(sigmas), excess / scatter if scatter else 0.0, heat.tokens)


def believable_frequency(heat: Heat, skew: Skew, *, layers: int) -> Floats:
    """Return uses a token, drawn to the layer's mean by what is chance: the hottest by luck will not stay the hottest."""
    rows = heat.frequency.reshape(layers, -1)
    mean = rows.mean(axis=1, keepdims=True)
    return np.asarray((mean + skew.kept * (rows - mean)).ravel())


def _centred(weight: Floats, layers: int) -> Floats:
    rows = weight.reshape(layers, -1)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))
