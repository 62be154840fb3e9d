"""From scores to moves: who comes in, who goes out, and when a move is not worth its bytes. Decides only; moves nothing.

Scores become expected uses a token. An expert comes in where it saves more reading from home, within `payback_tokens`, than
the move itself reads; it pushes others out only by a margin, so that two experts alike do not change places for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from optaned.placement.arrays import Flags, Floats, Integers

HOME = -1


@dataclass(frozen=True, slots=True)
class MoveRules:
    """What a round of moves keeps to.

        `round_bytes` bounds what is promoted (save it up over rounds where it is less than one expert); `uses_per_token` is
    layers times experts used; `hysteresis` 0.2 asks a newcomer for 1.2 times the uses of each victim; without `exchange`
    only free room is filled. `payback_tokens` inf makes moves free, as where a missed expert is read anyway.

    Replayed on a trace like Kimi K3's with room for 9.5 % of the experts, the defaults hit as often as a least-recently-used
    cache (57 %) and move 3 % of the routed bytes a token, where that cache moves 43 %.
    """

    round_bytes: int
    uses_per_token: float
    payback_tokens: float = 64.0
    hysteresis: float = 0.2
    exchange: bool = True


@dataclass(frozen=True, slots=True)
class Standing:
    """Where experts are now; arrays are over flat numbers.

    `tier_of` is the number of a tier in `budgets` (bytes that each has for experts, the best tier first) or HOME. `pinned`
    experts come in first and do not go out; `barred` ones do not come in.
    """

    tier_of: Integers
    sizes: Integers
    budgets: tuple[int, ...]
    pinned: Flags
    barred: Flags


class Step(NamedTuple):
    """One expert in or out of the tier of that number."""

    expert: int
    tier: int


class Moves(NamedTuple):
    """A round of moves: all that goes out goes before what comes in. No expert is in it twice."""

    demote: tuple[Step, ...] = ()
    promote: tuple[Step, ...] = ()


def plan_moves(scores: ArrayLike, standing: Standing, rules: MoveRules) -> Moves:
    """Return the moves of one round. Scores are at least 0, one an expert; all 0 moves only what is pinned or overfull."""
    uses = expected_uses(scores, rules.uses_per_token)
    turn = _Round(uses, standing, rules)
    turn.shed()
    for expert in turn.candidates():
        if not turn.take(expert):
            break
    return Moves(tuple(turn.demote), tuple(turn.promote))


def expected_uses(scores: ArrayLike, uses_per_token: float) -> Floats:
    """Return scores as uses a token: scaled to what all experts together are used. Faulty scores (NaN, below 0) count as 0."""
    clean = np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0).clip(min=0.0)
    total = float(clean.sum())
    # Divided first: the quotient of a tiny total would be infinite.
    return clean / total * uses_per_token if total else clean


class _Round:
    """A round while it is being decided: room left, and each tier's victims, the coldest first."""

    def __init__(self, uses: Floats, standing: Standing, rules: MoveRules) -> None:
        self.demote: list[Step] = []
        self.promote: list[Step] = []
        self._uses, self._standing, self._rules = uses, standing, rules
        self._left_bytes = rules.round_bytes
        self._victims = [self._coldest_first(tier) for tier in range(len(standing.budgets))]
        self._room = [
            budget - int(standing.sizes[victims].sum())
            for budget, victims in zip(standing.budgets, self._victims, strict=True)
        ]
        self._next = [0] * len(standing.budgets)

    def shed(self) -> None:
        """Give back what a tier holds above its budget: the coldest first, pinned ones last."""
        for tier, victims in enumerate(self._victims):
            while self._room[tier] < 0 and self._next[tier] < len(victims):
                self._put_out(tier, 1)

    def candidates(self) -> list[int]:
        """Return who might come in, the most deserving first, as many as the round's bytes can hold."""
        standing, uses = self._standing, self._uses
        out = (standing.tier_of == HOME) & (standing.sizes <= self._left_bytes)
        wanted = out & (standing.pinned | (~standing.barred & (uses > 0) & (uses >= 1 / self._rules.payback_tokens)))
        found = np.flatnonzero(wanted)
        if not found.size:
            return []
        most = self._left_bytes // max(1, int(standing.sizes[found].min())) + 1
        worth = np.where(standing.pinned[found], np.inf, uses[found])
        if found.size > most:
            kept = np.argpartition(-worth, most - 1)[:most]
            found, worth = found[kept], worth[kept]
        # Ties go by number, so that the same scores always make the same moves.
        return [int(found[place]) for place in np.lexsort((found, -worth))]

    def take(self, expert: int) -> bool:
        """Let an expert in if there is a way; False where no colder one will find a way either."""
        size = int(self._standing.sizes[expert])
        if size > self._left_bytes:
            return False
        tier = next((tier for tier, room in enumerate(self._room) if room >= size), None)
        if tier is None:
            found = self._exchange(expert, size)
            if found is None:
                return bool(self._standing.pinned[expert])
            tier, count = found
            self._put_out(tier, count)
        self._room[tier] -= size
        self._left_bytes -= size
        self.promote.append(Step(expert, tier))
        return True

    def _exchange(self, expert: int, size: int) -> tuple[int, int] | None:
        """Return the tier with the coldest victims and how many must go, if the newcomer is worth that."""
        best: tuple[float, int, int] | None = None
        for tier, victims in enumerate(self._victims):
            start, freed, count = self._next[tier], self._room[tier], 0
            while freed < size and start + count < len(victims):
                victim = victims[start + count]
                if self._standing.pinned[victim]:
                    break
                freed += int(self._standing.sizes[victim])
                count += 1
            going = victims[start : start + count]
            if freed < size or not self._pays(expert, going):
                continue
            lost = float((self._uses[going] * self._standing.sizes[going]).sum())
            if best is None or lost < best[0]:
                best = (lost, tier, count)
        return best[1:] if best else None

    def _pays(self, expert: int, going: Integers) -> bool:
        if self._standing.pinned[expert]:
            return True
        if not self._rules.exchange:
            return False
        size, uses = float(self._standing.sizes[expert]), self._uses
        saved = uses[expert] * size - float((uses[going] * self._standing.sizes[going]).sum())
        margin = uses[expert] > (1 + self._rules.hysteresis) * float(uses[going].max())
        return bool(margin and saved >= size / self._rules.payback_tokens)

    def _put_out(self, tier: int, count: int) -> None:
        start = self._next[tier]
        for victim in self._victims[tier][start : start + count].tolist():
            self._room[tier] += int(self._standing.sizes[victim])
            self.demote.append(Step(victim, tier))
        self._next[tier] += count

    def _coldest_first(self, tier: int) -> Integers:
        found = np.flatnonzero(self._standing.tier_of == tier)
        return found[np.lexsort((found, self._uses[found], self._standing.pinned[found]))]
