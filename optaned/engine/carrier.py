"""Carries tensors and experts between tiers, one at a time, and keeps the book true: what failed halfway is undone.

Knows movers and the book; decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from optaned.domain.model import ByteRange
from optaned.engine.residents import HOME, Residents
from optaned.hooks.drivers import Mover


class Carrier:
    """One mover a tier, in the book's order. Each method returns why it failed, None when it is done."""

    def __init__(self, residents: Residents, movers: Sequence[Mover]) -> None:
        self._residents = residents
        self._movers = tuple(movers)

    def bring_tensor(self, tensor: int, tier: int) -> str | None:
        """Promote a trunk tensor."""
        fault = self._bring((self._residents.index.tensors[tensor].place,), tier)
        if fault is None:
            self._residents.tensor_arrived(tensor, tier)
        return fault

    def bring_expert(self, flat: int, tier: int) -> str | None:
        """Promote an expert that is at home."""
        fault = self._bring(self._residents.ranges(flat), tier)
        if fault is None:
            self._residents.expert_arrived(flat, tier)
        return fault

    def drop_expert(self, flat: int) -> str | None:
        """Demote a resident expert. What a refused call left behind stays entered, as it may still be there."""
        tier = int(self._residents.tier_of_expert[flat])
        if tier == HOME:
            return None
        fault = self._movers[tier].demote(self._residents.ranges(flat)).fault
        if fault is None:
            self._residents.expert_left(flat)
        return fault

    def close(self) -> None:
        """Close the movers; what is resident stays so until the model is freed."""
        for mover in self._movers:
            mover.close()

    def _bring(self, ranges: Sequence[ByteRange], tier: int) -> str | None:
        moved = self._movers[tier].promote(ranges)
        if moved.fault is not None:
            with suppress(OSError):
                self._movers[tier].demote(ranges)
        return moved.fault
