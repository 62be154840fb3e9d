"""A model on block homes: the native store reads what the router chooses, the house says what comes first and what stays.

Exchanges are the store's own, at every choice; here are the start, moves by hand and the figures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from optaned.domain.model import ModelIndex
from optaned.engine.by_hand import ByHand, Order
from optaned.engine.house import GivenUpError, Interrupt, Progress
from optaned.engine.learning import Learning
from optaned.engine.messages import Move, Promotion, TierSpec, TierUse
from optaned.engine.residents import HOME, Residents
from optaned.errors import OptanedError
from optaned.residency.block import BlockStats
from optaned.units import format_bytes

log = logging.getLogger("optaned.engine")

# One call's worth, between two looks at whether the parent is still there.
_CALL_BYTES = 64 << 20


class _Batch(NamedTuple):
    numbers: list[int]
    size_bytes: int


class Store(Protocol):
    """What is asked of the native store."""

    def promote_trunk(self, tensors: Sequence[int] | None = None) -> int: ...

    def promote(self, flats: Sequence[int], *, pinned: bool = False) -> int: ...

    def expect(self, flats: Sequence[int]) -> None: ...

    def demote(self, flats: Sequence[int]) -> None: ...

    def unpin(self, flats: Sequence[int]) -> None: ...

    def resident(self) -> NDArray[np.bool_]: ...

    def stats(self) -> BlockStats: ...

    def heed_memory(self) -> str | None: ...


class BlockHouse:
    """Implements `House`. All tiers that take bytes are one budget of memory, told under the first one's name."""

    def __init__(self, index: ModelIndex, store: Store, tier: TierSpec, home_tiers: Sequence[str]) -> None:
        self._store = store
        self._book = Residents(index, (tier,), home_tiers)
        self._by_hand = ByHand(self._book)
        self.fault = ""

    @property
    def routed_bytes(self) -> int:
        stats = self._store.stats()
        return stats.hit_bytes + stats.missed_bytes

    def uses(self) -> tuple[TierUse, ...]:
        """Return the store's figures: what it read counts as promoted, what it gave back as demoted."""
        self._refresh()
        stats = self._store.stats()
        fast, *homes = self._book.uses()
        told = TierUse(
            name=fast.name,
            budget_bytes=stats.budget_bytes,
            trunk_bytes=fast.trunk_bytes,
            expert_bytes=fast.expert_bytes,
            experts=fast.experts,
            promoted_bytes_total=stats.bytes_read,
            demoted_bytes_total=stats.evicted_bytes,
            hit_bytes_total=stats.hit_bytes,
        )
        return (told, *(_missed(home, stats.missed_bytes, len(homes)) for home in homes))

    def used(self, counts: NDArray[np.int64]) -> None:
        """Nothing to do: the store counts hits itself, at every choice."""

    def settle(self, promotions: Sequence[Promotion], learning: Learning, progress: Progress) -> None:
        """Read the planned trunk, then experts by saved heat, else those of the plan, until the budget is used."""
        self._heed_memory()
        tensors = [number for part in promotions for number in part.tensors]
        jobs = [(self._bring_trunk, part) for part in _batches(tensors, self._book.tensor_bytes)]
        experts = self._first_experts(promotions, learning)
        self._store.expect(experts)
        jobs += [(self._bring_experts, part) for part in _batches(experts, self._expert_bytes)]
        total = sum(part.size_bytes for _, part in jobs)
        done = 0
        for bring, part in jobs:
            if not progress(done / total, f"reading {format_bytes(done)} of {format_bytes(total)}"):
                raise GivenUpError("loading was given up")
            try:
                bring(part)
            except OptanedError as error:
                self._fail(str(error))
                return
            done += part.size_bytes

    def exchange(self, learning: Learning, allowed_bytes: float, interrupt: Interrupt) -> None:  # noqa: ARG002
        """See to memory only: a miss is read when the router has chosen it, and pushes out the coldest."""
        self._heed_memory()

    def order(self, move: Move, warmth: NDArray[np.float64]) -> Order:
        self._refresh()
        order = self._by_hand.order(move, warmth)
        if move.do == "unpin":
            self._store.unpin(np.flatnonzero(~self._book.pinned & self._book.resident).tolist())
        self._book.barred[:] = False
        if move.do == "demote":
            # A miss is read into memory, whoever demoted it.
            return replace(order, text=order.text.partition(";")[0] + "; they come back when the router chooses them")
        return order

    def obey(self, order: Order, interrupt: Interrupt) -> None:
        try:
            if order.out:
                self._store.demote(order.out)
            for expert, _ in order.into:
                if interrupt():
                    return
                self._store.promote([expert], pinned=bool(self._book.pinned[expert]))
        except OptanedError as error:
            self._fail(str(error))

    def close(self) -> None:
        """The store is closed by whoever opened it."""

    def _first_experts(self, promotions: Sequence[Promotion], learning: Learning) -> list[int]:
        scores = learning.scores(self._book.resident)
        if scores is None or not learning.heat.tokens:
            return [expert for part in promotions for expert in part.experts]
        order = np.argsort(-np.asarray(scores), kind="stable")
        order = order[np.asarray(scores)[order] > 0]
        room = self._book.tiers[0].budget_bytes - sum(
            self._book.tensor_bytes(number) for part in promotions for number in part.tensors
        )
        return [int(n) for n in order[np.cumsum(self._book.sizes[order]) <= room]]

    def _expert_bytes(self, expert: int) -> int:
        return int(self._book.sizes[expert])

    def _bring_trunk(self, part: _Batch) -> None:
        resident = self._store.promote_trunk(part.numbers)
        for tensor in part.numbers:
            # In this order: of a batch that does not fit, the first ones are there.
            resident -= self._book.tensor_bytes(tensor)
            if resident < 0:
                self._fail("the trunk does not fit the budget; the rest of it is read from home")
                return
            self._book.tensor_arrived(tensor, 0)

    def _bring_experts(self, part: _Batch) -> None:
        self._store.promote(part.numbers)

    def _heed_memory(self) -> None:
        if said := self._store.heed_memory():
            self._fail(said)

    def _refresh(self) -> None:
        self._book.tier_of_expert[:] = np.where(self._store.resident(), 0, HOME)

    def _fail(self, fault: str) -> None:
        if fault != self.fault:
            log.warning("moving: %s", fault)
        self.fault = fault


def _batches(numbers: Sequence[int], size_of: Callable[[int], int]) -> list[_Batch]:
    """Return numbers in order, in batches of about a call's worth: the store reads a batch's pieces side by side."""
    batches: list[_Batch] = []
    for number in numbers:
        if not batches or batches[-1].size_bytes >= _CALL_BYTES:
            batches.append(_Batch([], 0))
        last = batches[-1]
        batches[-1] = _Batch([*last.numbers, number], last.size_bytes + size_of(number))
    return batches


def _missed(home: TierUse, missed_bytes: int, homes: int) -> TierUse:
    """Return a home's part with what was read from it; where there are several, nobody counts them apart."""
    return TierUse(
        name=home.name,
        budget_bytes=0,
        trunk_bytes=home.trunk_bytes,
        expert_bytes=home.expert_bytes,
        experts=home.experts,
        hit_bytes_total=missed_bytes // max(1, homes),
    )
