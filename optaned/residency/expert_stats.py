"""Heat and residency as placement policies are given them."""

from __future__ import annotations

import numpy as np

from optaned.hooks.drivers import ExpertStats
from optaned.placement.arrays import Flags
from optaned.placement.heat import Heat


def stats_of(heat: Heat, resident: Flags | None = None) -> ExpertStats:
    """Return what a policy plans and scores by; without `resident` every expert is at home."""
    if resident is None:
        resident = np.zeros(heat.weight.size, dtype=np.bool_)
    return ExpertStats(heat.frequency, heat.idle_tokens, resident, heat.tokens)
