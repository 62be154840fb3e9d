"""A slot is a sequence of the model and the tokens evaluated there; which one suits a prompt best is decided here.

Pure decisions; knows no model, no request and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Slot:
    """Sequence `number` of the model. `tokens` are those whose state the model holds; `used` orders by last use."""

    number: int
    tokens: list[int] = field(default_factory=list)
    used: int = 0


def common_prefix(left: list[int], right: list[int]) -> int:
    """Return how many leading tokens are equal, by bisection over slices (which compare at the speed of C)."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def reusable(tokens: list[int], prompt: list[int], *, can_cut: bool) -> int:
    """Return how many of a slot's evaluated tokens may serve `prompt`.

    The last prompt token is always evaluated again, because its output row chooses the first token. A model that cannot
    cut reuses its whole history or nothing.
    """
    limit = len(prompt) - 1
    keep = min(common_prefix(tokens, prompt[:limit]), limit)
    return keep if can_cut or keep == len(tokens) else 0


def choose_slot(idle: Sequence[Slot], prompt: list[int], *, can_cut: bool) -> tuple[Slot, int]:
    """Return the idle slot that saves most of `prompt` and what it saves; of equals the least recently used."""
    scored = [(-reusable(slot.tokens, prompt, can_cut=can_cut), slot.used, slot.number, slot) for slot in idle]
    saved, _, _, slot = min(scored, key=lambda score: score[:3])
    return slot, -saved
