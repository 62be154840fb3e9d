"""A model on byte-addressable homes: misses are read in place, what is hot is copied to faster tiers, expert by expert.

Decides by `placement.moves`, carries by `Carrier`, keeps the book. Knows no thread, no clock and no message to anybody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optaned.engine.by_hand import ByHand, Order
from optaned.engine.carrier import Carrier
from optaned.engine.house import GivenUpError, Interrupt, Progress
from optaned.engine.learning import Learning
from optaned.engine.messages import Move, Promotion, TierUse
from optaned.engine.residents import HOME, Residents
from optaned.placement.moves import MoveRules, Moves, Standing, plan_moves
from optaned.units import format_bytes

log = logging.getLogger("optaned.engine")


class _Job(NamedTuple):
    """One thing to bring before the engine is open."""

    bring: Callable[[int, int], str | None]
    number: int
    tier: int
    size_bytes: int


class PageHouse:
    """Implements `House`."""

    def __init__(self, residents: Residents, carrier: Carrier) -> None:
        self._book = residents
        self._carrier = carrier
        self._by_hand = ByHand(residents)
        self._saved_bytes = 0.0
        self.fault = ""

    @property
    def routed_bytes(self) -> int:
        return self._book.routed_bytes

    def uses(self) -> tuple[TierUse, ...]:
        return self._book.uses()

    def used(self, counts: NDArray[np.int64]) -> None:
        self._book.used(counts)

    def settle(self, promotions: Sequence[Promotion], learning: Learning, progress: Progress) -> None:
        """Bring trunk tensors, then the experts that saved heat ranks first, else those of the plan."""
        jobs = self._first_jobs(promotions, learning)
        total, done = sum(job.size_bytes for job in jobs), 0
        for job in jobs:
            if not progress(done / total, f"promoting {format_bytes(done)} of {format_bytes(total)}"):
                raise GivenUpError("loading was given up")
            fault = job.bring(job.number, job.tier)
            if fault is not None:
                self._fail(f"{format_bytes(done)} of {format_bytes(total)} were promoted", fault)
                break
            done += job.size_bytes

    def exchange(self, learning: Learning, allowed_bytes: float, interrupt: Interrupt) -> None:
        scores = learning.scores(self._book.resident)
        if scores is None or not self._book.tiers:
            return
        # What one turn could not spend is kept for the next: an expert may be larger than a slow turn's bytes.
        rooms = self._rooms([self._book.trunk_bytes(tier) for tier in range(len(self._book.tiers))])
        allowed = min(allowed_bytes, float(sum(rooms)))
        self._saved_bytes = min(self._saved_bytes + allowed, allowed + int(self._book.sizes.max(initial=0)))
        rules = MoveRules(int(self._saved_bytes), learning.uses_per_token, exchange=learning.exchanges_pay)
        moves = plan_moves(scores, self._standing(rooms), rules)
        self._saved_bytes -= sum(int(self._book.sizes[step.expert]) for step in moves.promote)
        self._carry(moves, interrupt)

    def order(self, move: Move, warmth: NDArray[np.float64]) -> Order:
        return self._by_hand.order(move, warmth)

    def obey(self, order: Order, interrupt: Interrupt) -> None:
        for expert in order.out:
            self._note(self._carrier.drop_expert(expert))
        for expert, tier in order.into:
            if interrupt():
                return
            self._note(self._carrier.bring_expert(expert, tier))

    def close(self) -> None:
        self._carrier.close()

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _first_jobs(self, promotions: Sequence[Promotion], learning: Learning) -> list[_Job]:
        book, carrier = self._book, self._carrier
        tiers = {spec.name: number for number, spec in enumerate(book.tiers)}
        trunk = [
            _Job(carrier.bring_tensor, number, tiers[part.tier], book.tensor_bytes(number))
            for part in promotions
            for number in part.tensors
        ]
        taken = [sum(job.size_bytes for job in trunk if job.tier == tier) for tier in range(len(tiers))]
        experts = self._first_experts(promotions, tiers, self._rooms(taken), learning)
        return trunk + [_Job(carrier.bring_expert, n, tier, int(book.sizes[n])) for n, tier in experts]

    def _first_experts(
        self, promotions: Sequence[Promotion], tiers: dict[str, int], rooms: tuple[int, ...], learning: Learning
    ) -> list[tuple[int, int]]:
        scores = learning.scores(self._book.resident)
        if scores is None or not learning.heat.tokens:
            return [(expert, tiers[part.tier]) for part in promotions for expert in part.experts]
        everything = MoveRules(sum(rooms), learning.uses_per_token, payback_tokens=float("inf"))
        moves = plan_moves(scores, self._standing(rooms), everything)
        return [(step.expert, step.tier) for step in moves.promote]

    def _rooms(self, trunk_bytes: Sequence[int]) -> tuple[int, ...]:
        """Return what each tier has for experts."""
        return tuple(spec.budget_bytes - trunk for spec, trunk in zip(self._book.tiers, trunk_bytes, strict=True))

    def _standing(self, rooms: tuple[int, ...]) -> Standing:
        book = self._book
        return Standing(book.tier_of_expert.astype(np.int64), book.sizes, rooms, book.pinned, book.barred)

    def _carry(self, moves: Moves, interrupt: Interrupt) -> None:
        """Carry out a round; what somebody asked for by hand meanwhile may have overtaken it."""
        book = self._book
        for step in moves.demote:
            if interrupt():
                return
            if book.tier_of_expert[step.expert] == step.tier and not book.pinned[step.expert]:
                self._note(self._carrier.drop_expert(step.expert))
        for step in moves.promote:
            if interrupt():
                return
            fits = book.left_bytes(step.tier) >= int(book.sizes[step.expert])
            if book.tier_of_expert[step.expert] == HOME and fits and not book.barred[step.expert]:
                self._note(self._carrier.bring_expert(step.expert, step.tier))

    def _note(self, fault: str | None) -> None:
        if fault is not None:
            self._fail("a move failed", fault)

    def _fail(self, what: str, fault: str) -> None:
        if fault != self.fault:
            log.warning("%s: %s", what, fault)
        self.fault = fault
