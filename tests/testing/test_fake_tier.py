"""The tier to play with holds to the contract that it comes with."""

from __future__ import annotations

from pathlib import Path

import pytest

from optaned.domain.model import ByteRange
from optaned.errors import OptanedError
from optaned.hooks.drivers import Tier
from optaned.testing.tier_contract import FakePages, FakeTier, TierContract


class TestTheFakeHoldsTheContract(TierContract):
    def make_tier(self, folder: Path) -> Tier:
        return FakeTier()


def test_it_is_full_when_it_is_full() -> None:
    mover = FakeTier(capacity_bytes=2048).open_mover(FakePages())
    parts = [ByteRange(0, n * 1024, 1024) for n in range(3)]
    assert mover.promote(parts) == (2048, "fake0 is full")


def test_it_can_be_broken() -> None:
    with pytest.raises(OptanedError, match="fake0: unplugged"):
        FakeTier(broken="unplugged").probe()
