"""Where a model's bytes live while it answers, as the steward sees it: brought at the start, exchanged, moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from optaned.engine.by_hand import Order
from optaned.engine.learning import Learning
from optaned.engine.messages import Move, Promotion, TierUse
from optaned.errors import OptanedError

# Called with a share from 0 to 1 and words; False gives up.
Progress = Callable[[float, str], bool]
# Serves what was asked meanwhile; True ends the work at hand.
Interrupt = Callable[[], bool]


class GivenUpError(OptanedError):
    """The parent left while the planned bytes were being brought."""

    exit_code = 75


class House(Protocol):
    """All methods are called from one thread. `fault` is the last thing that went wrong, in one line, or empty."""

    fault: str

    @property
    def routed_bytes(self) -> int:
        """Return how many bytes of experts the router chose while decoding."""

    def uses(self) -> tuple[TierUse, ...]: ...

    def used(self, counts: NDArray[np.int64]) -> None:
        """Take in how often decoding used each expert, by flat number."""

    def settle(self, promotions: Sequence[Promotion], learning: Learning, progress: Progress) -> None:
        """Bring what is planned, before the model answers. What does not come is a fault; the model is read from home.

        Raises GivenUpError when `progress` returns False.
        """

    def exchange(self, learning: Learning, allowed_bytes: float, interrupt: Interrupt) -> None:
        """Move what has become worth it, at most `allowed_bytes`."""

    def order(self, move: Move, warmth: NDArray[np.float64]) -> Order:
        """Return what a move by hand will do. Raises UsageError when it cannot be done."""

    def obey(self, order: Order, interrupt: Interrupt) -> None:
        """Do it."""

    def close(self) -> None:
        """Before the model is freed."""
