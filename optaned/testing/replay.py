"""Replay a trace of router choices against a placement policy: what it would have been worth, and what it would have moved.

The core's own heat, skew, plan check and moves take part, so that a figure here is what the engine does with the same choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optaned.domain.tiers import PlacementPlan, TierInfo, TierKind
from optaned.hooks.drivers import ExpertStats, PlacementPolicy, PlanRequest, Scores
from optaned.placement.check import faults_of
from optaned.placement.heat import Heat
from optaned.placement.moves import HOME, MoveRules, Moves, Standing, plan_moves
from optaned.placement.skew import Skew, measure_skew
from optaned.testing.baselines import belady_share, lru_share, null_share
from optaned.testing.traces import HOME_MOUNT, Trace


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy was worth on a trace, from token `after` on, beside what others would have been.

    Shares are of uses that found their expert in a fast tier; `home_bytes` is what was read from home for a token, misses
    and moves together.
    """

    hit_share: float
    null_share: float
    lru_share: float
    belady_share: float
    moved_bytes: int
    home_bytes: float
    skew: Skew


def rules_for(trace: Trace, *, payback_tokens: float = 64.0, hysteresis: float = 0.2) -> MoveRules:
    """Return rules that allow any number of moves a token; payback inf makes them free."""
    return MoveRules(
        round_bytes=trace.layers * trace.experts * trace.expert_bytes,
        uses_per_token=trace.layers * trace.used,
        payback_tokens=payback_tokens,
        hysteresis=hysteresis,
    )


def replay(
    policy: PlacementPolicy,
    trace: Trace,
    tiers: Sequence[TierInfo],
    *,
    rules: MoveRules | None = None,
    heat: Heat | None = None,
    after: int = 0,
) -> Replay:
    """Return what `policy` makes of a trace with fast `tiers` (the best first; their free bytes are for experts alone).

    `heat` is a saved profile to start from. Raises ValueError where the policy's plan breaks a rule.
    """
    rules = rules or rules_for(trace)
    run = _Run(policy, trace, tiers, rules, heat)
    hits = moved = counted = 0
    for token, used in enumerate(trace.flat):
        if token >= after:
            hits += int((run.tier_of[used] != HOME).sum())
            counted += used.size
        moves = run.step(used)
        if token >= after:
            moved += len(moves.promote) * trace.expert_bytes
    capacity = sum(tier.free_bytes for tier in tiers) // trace.expert_bytes
    missed = (counted - hits) * trace.expert_bytes
    return Replay(
        hit_share=hits / counted if counted else 0.0,
        null_share=null_share(trace, capacity),
        lru_share=lru_share(trace, capacity, after=after),
        belady_share=belady_share(trace, capacity, after=after),
        moved_bytes=moved,
        home_bytes=(missed + moved) / max(1, trace.tokens - after),
        skew=run.skew,
    )


class _Run:
    """One policy at work: where its experts are, and what it has learned."""

    def __init__(
        self, policy: PlacementPolicy, trace: Trace, tiers: Sequence[TierInfo], rules: MoveRules, heat: Heat | None
    ) -> None:
        experts = trace.layers * trace.experts
        self._policy, self._trace, self._rules = policy, trace, rules
        self._heat = heat or Heat.cold(experts)
        self._sizes = np.full(experts, trace.expert_bytes, dtype=np.int64)
        self._budgets = tuple(tier.free_bytes for tier in tiers)
        self._none = np.zeros(experts, dtype=np.bool_)
        self.tier_of = np.full(experts, HOME, dtype=np.int64)
        names = [tier.name for tier in tiers]
        for part in _plan(policy, trace, tiers, None if heat is None else self._stats()).promotions:
            self.tier_of[list(part.experts)] = names.index(part.tier)

    @property
    def skew(self) -> Skew:
        return measure_skew(self._heat, layers=self._trace.layers, used=self._trace.used)

    def step(self, used: NDArray[np.int64]) -> Moves:
        """Learn from one token and move."""
        self._heat = self._heat.observe(np.bincount(used, minlength=self.tier_of.size), 1)
        if not isinstance(self._policy, Scores):
            return Moves()
        exchange = math.isinf(self._rules.payback_tokens) or self.skew.exchanges_pay
        standing = Standing(self.tier_of, self._sizes, self._budgets, self._none, self._none)
        moves = plan_moves(self._policy.score(self._stats()), standing, replace(self._rules, exchange=exchange))
        for step in moves.demote:
            self.tier_of[step.expert] = HOME
        for step in moves.promote:
            self.tier_of[step.expert] = step.tier
        return moves

    def _stats(self) -> ExpertStats:
        return ExpertStats(self._heat.frequency, self._heat.idle_tokens, self.tier_of != HOME, self._heat.tokens)


def _plan(policy: PlacementPolicy, trace: Trace, tiers: Sequence[TierInfo], stats: ExpertStats | None) -> PlacementPlan:
    index = trace.index()
    home = TierInfo("home", "replay", TierKind.BYTE, index.size_bytes, 0, mount=HOME_MOUNT)
    known = (*tiers, home)
    plan = policy.plan(PlanRequest(index, known, tuple(tier.name for tier in tiers), 0, stats))
    if faults := faults_of(plan, index, known, 0):
        raise ValueError("; ".join(faults))
    return plan
