"""Moves that a person asks for: which experts are meant, where they go, who makes room. Decides only.

What is pinned stays until it is unpinned or demoted; what was demoted by hand stays out until it is promoted or unpinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optaned.engine.messages import Move
from optaned.engine.residents import Residents
from optaned.errors import UsageError
from optaned.units import format_bytes


@dataclass(frozen=True, slots=True)
class Order:
    """What will be done, in words and in steps: experts that go out, then experts and the tier they go into."""

    text: str
    out: tuple[int, ...] = ()
    into: tuple[tuple[int, int], ...] = ()


class ByHand:
    """Turns a `Move` into an `Order`, and marks in the book what is pinned or kept out."""

    def __init__(self, residents: Residents) -> None:
        self._book = residents

    def order(self, move: Move, warmth: NDArray[np.float64]) -> Order:
        """Return what will be done. Raises UsageError, in one line, when it cannot be; then nothing is marked.

        `warmth` by flat number says who makes room first: the coldest.
        """
        experts = self._meant(move)
        match move.do:
            case "promote" | "pin":
                return self._bring(move, experts, warmth)
            case "demote":
                return self._drop(experts)
            case "unpin":
                self._mark(experts, pinned=False, barred=False)
                return Order(f"{_count(experts)} left to the policy")
        raise UsageError(f"{move.do!r} is no move; promote, demote, pin and unpin are")

    def _meant(self, move: Move) -> NDArray[np.int64]:
        index = self._book.index
        if not self._book.tiers:
            raise UsageError(
                "no tier takes promoted bytes; name one in placement.promote_to and choose a policy that does"
            )
        if not index.expert_layers:
            raise UsageError("the model has no routed experts")
        if move.layer not in index.expert_layers:
            first, last = index.expert_layers[0], index.expert_layers[-1]
            raise UsageError(f"layer {move.layer} has no routed experts; layers {first} to {last} have")
        start = index.expert_layers.index(move.layer) * index.expert_count
        if move.expert is None:
            return np.arange(start, start + index.expert_count)
        if not 0 <= move.expert < index.expert_count:
            raise UsageError(f"there is no expert {move.expert}; layer {move.layer} has 0 to {index.expert_count - 1}")
        return np.array([start + move.expert])

    def _drop(self, experts: NDArray[np.int64]) -> Order:
        self._mark(experts, pinned=False, barred=True)
        gone = experts[self._book.resident[experts]]
        return Order(f"demoting {self._shown(gone)}; kept out until promoted or unpinned", tuple(gone.tolist()))

    def _bring(self, move: Move, experts: NDArray[np.int64], warmth: NDArray[np.float64]) -> Order:
        wanted = experts[~self._book.resident[experts]]
        into, out = self._make_room(wanted, experts, warmth)
        self._mark(experts, pinned=move.do == "pin", barred=False)
        if not wanted.size:
            return Order(f"{_count(experts)} resident already{', pinned now' if move.do == 'pin' else ''}")
        verb = "promoting and pinning" if move.do == "pin" else "promoting"
        room = f", demoting {self._shown(np.array(out))} for it" if out else ""
        return Order(f"{verb} {self._shown(wanted)}{room}", tuple(out), tuple(into))

    def _make_room(
        self, wanted: NDArray[np.int64], spared: NDArray[np.int64], warmth: NDArray[np.float64]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Give each expert a tier: the first with room, else the first whose coldest leave, pinned ones never."""
        book = self._book
        left = [book.left_bytes(tier) for tier in range(len(book.tiers))]
        victims = [self._victims(tier, spared, warmth) for tier in range(len(book.tiers))]
        into: list[tuple[int, int]] = []
        out: list[int] = []
        for expert in wanted.tolist():
            size = int(book.sizes[expert])
            tier = next((t for t, room in enumerate(left) if room >= size), None)
            if tier is None:
                tier = next((t for t, v in enumerate(victims) if left[t] + int(book.sizes[v].sum()) >= size), None)
            if tier is None:
                need, have = format_bytes(int(book.sizes[wanted].sum())), ", ".join(map(self._left, range(len(left))))
                raise UsageError(f"{need} do not fit: {have}; demote or unpin something, or raise the tier's budget")
            while left[tier] < size:
                victim, victims[tier] = int(victims[tier][0]), victims[tier][1:]
                left[tier] += int(book.sizes[victim])
                out.append(victim)
            left[tier] -= size
            into.append((expert, tier))
        return into, out

    def _victims(self, tier: int, spared: NDArray[np.int64], warmth: NDArray[np.float64]) -> NDArray[np.int64]:
        found = np.flatnonzero((self._book.tier_of_expert == tier) & ~self._book.pinned)
        found = np.setdiff1d(found, spared)
        return found[np.argsort(warmth[found], kind="stable")]

    def _left(self, tier: int) -> str:
        spec = self._book.tiers[tier]
        movable = int(self._book.sizes[(self._book.tier_of_expert == tier) & ~self._book.pinned].sum())
        room = format_bytes(max(0, self._book.left_bytes(tier)) + movable)
        return f"{spec.name} has {room} that are neither trunk nor pinned"

    def _mark(self, experts: NDArray[np.int64], *, pinned: bool, barred: bool) -> None:
        self._book.pinned[experts] = pinned
        self._book.barred[experts] = barred

    def _shown(self, experts: NDArray[np.int64]) -> str:
        size = int(self._book.sizes[experts].sum()) if experts.size else 0
        return f"{_count(experts)}, {format_bytes(size)}"


def _count(experts: NDArray[np.int64] | Sequence[int]) -> str:
    return f"{len(experts)} expert{'' if len(experts) == 1 else 's'}"
