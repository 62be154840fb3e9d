"""What plugins may add to a proposal: more cooling, less duty, a higher level; never less. Knows no plugin."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from optaned.domain.thermal import Level, Proposal, Vote

# What a level allows at most, whoever asked for it: at HOT something is left to be throttled.
_MOST_DUTY = {Level.COOL: 1.0, Level.WARM: 1.0, Level.HOT: 0.9, Level.CRITICAL: 0.0, Level.TRIP: 0.0}


def apply_votes(proposal: Proposal, votes: Iterable[Vote]) -> Proposal:
    """Return the highest level, the least duty and the most cooling of all. A vote reaches CRITICAL at most.

    A TRIP cannot be undone, so that it takes confirmed readings; values that are no numbers are no vote.
    """
    for vote in votes:
        proposal = _apply(proposal, vote)
    return proposal


def hold(proposal: Proposal, reason: str) -> Proposal:
    """Return a TRIP for as long as a latch says so, whatever the sensors say."""
    return Proposal(Level.TRIP, 0.0, 1.0, (reason, *proposal.reasons))


def _apply(proposal: Proposal, vote: Vote) -> Proposal:
    level = max(proposal.level, min(vote.level or Level.COOL, Level.CRITICAL))
    duty = min(proposal.duty, _clamp(vote.duty, 1.0), _MOST_DUTY[level])
    cooling = max(proposal.cooling, _clamp(vote.cooling, 0.0), 1.0 if level >= Level.HOT else 0.0)
    if (level, duty, cooling) == (proposal.level, proposal.duty, proposal.cooling):
        return proposal
    reasons = (*proposal.reasons, vote.reason) if vote.reason else proposal.reasons
    return replace(proposal, level=level, duty=duty, cooling=cooling, reasons=reasons)


def _clamp(value: float | None, neutral: float) -> float:
    return min(max(value, 0.0), 1.0) if value is not None and math.isfinite(value) else neutral
