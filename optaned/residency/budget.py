"""How much moving decoding can bear, learned from its steps, and buckets that hold a mover to it. Pure arithmetic.

While pages move, decoding loses a share of its speed, the slowdown: at worst all of it. If moves run for a share of the
time, decoding loses share × slowdown on the whole, and so the share follows from the loss that is allowed; even before
anything is learned it is safe to move for a tenth of the time. To see what a step takes undisturbed, moves rest during
one step in four.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

# Decoding loses at most this share of its speed. Aimed at less: medians hide the worst steps.
ALLOWED_LOSS = 0.1
_AIM = 0.8 * ALLOWED_LOSS
_RESTS_EVERY = 4
_MIN_QUIET = 3
# A step of which moves accompanied less than this says what quiet is; more than that, what a move costs.
_QUIET_SHARE, _MOVING_SHARE = 0.02, 0.04
_WORST = 1.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """An amount that may be spent (bytes, seconds). Negative after a large spending: the next one waits for it."""

    level: float
    at_s: float

    def refilled(self, rate: float, most: float, now_s: float) -> Bucket:
        """Return the bucket at a later time; `rate` comes in a second, and nothing is saved up beyond `most`."""
        return Bucket(min(most, self.level + rate * max(0.0, now_s - self.at_s)), max(self.at_s, now_s))

    def without(self, amount: float) -> Bucket:
        """Return the bucket after a spending."""
        return Bucket(self.level - amount, self.at_s)

    def wait_s(self, rate: float) -> float:
        """Return how long until it is not negative any more."""
        return max(0.0, -self.level) / rate if rate > 0 else float("inf")


@dataclass
class Governor:
    """Learns how much moves slow steps down, and says for which share of the time they may run. One thread.

    Steps are compared with steps of as many rows: a batch of eight takes longer than one of one.
    """

    quiet_s: dict[int, deque[float]] = field(default_factory=dict)
    slowdowns: deque[float] = field(default_factory=lambda: deque(maxlen=32))
    steps: int = 0

    @property
    def rests(self) -> bool:
        """Say whether nothing may move during the coming step."""
        return self.steps % _RESTS_EVERY == 0

    def observe(self, step_s: float, moving_s: float, rows: int) -> None:
        """Learn from a step that took so long, with moves running for `moving_s` of it."""
        self.steps += 1
        if step_s <= 0:
            return
        quiet = self.quiet_s.setdefault(rows, deque(maxlen=16))
        if moving_s < _QUIET_SHARE * step_s:
            quiet.append(step_s)
        elif moving_s > _MOVING_SHARE * step_s and len(quiet) >= _MIN_QUIET:
            lost_s = step_s - statistics.median(quiet)
            self.slowdowns.append(min(_WORST, max(0.0, lost_s / moving_s)))

    @property
    def slowdown(self) -> float:
        """Return the share of its speed that decoding loses while pages move; the worst before anything is known."""
        return statistics.median(self.slowdowns) if len(self.slowdowns) >= _MIN_QUIET else _WORST

    @property
    def share(self) -> float:
        """Return the share of time, from 0 to 1, in which pages may move while the model decodes."""
        slowdown = self.slowdown
        return min(1.0, _AIM / slowdown) if slowdown > 0 else 1.0
