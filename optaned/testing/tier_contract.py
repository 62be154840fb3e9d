"""What every tier driver must hold to, as tests to inherit; and a tier to play with, whose memory is a counter.

Knows the protocols `Tier`, `Movable`, `Mover` and `Pages`; knows no driver and maps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from optaned.domain.model import ByteRange
from optaned.domain.tiers import TierInfo, TierKind
from optaned.errors import OptanedError
from optaned.hooks.drivers import Movable, Moved, Mover, Pages, Tier

_KIB = 1 << 10


@dataclass
class FakePages:
    """Pages of a model in which each KiB is there or not. `room_bytes` is what fits before the kernel says no."""

    room_bytes: int = 1 << 60
    resident: set[tuple[int, int]] = field(default_factory=set)
    nodes: list[int | None] = field(default_factory=list)

    @property
    def resident_bytes(self) -> int:
        return len(self.resident) * _KIB

    def promote(self, ranges: Sequence[ByteRange], *, numa_node: int | None) -> Moved:
        """Make ranges resident, in order, until there is no room; counts only what was not resident before."""
        self.nodes.append(numa_node)
        moved = 0
        for block in _blocks(ranges):
            if block not in self.resident:
                if self.resident_bytes + _KIB > self.room_bytes:
                    return Moved(moved, "the kernel has no memory for it (ENOMEM)")
                self.resident.add(block)
                moved += _KIB
        return Moved(moved)

    def demote(self, ranges: Sequence[ByteRange]) -> Moved:
        """Give ranges back; counts only what was resident."""
        blocks = self.resident.intersection(_blocks(ranges))
        self.resident -= blocks
        return Moved(len(blocks) * _KIB)


def _blocks(ranges: Sequence[ByteRange]) -> list[tuple[int, int]]:
    return [(r.shard, kib) for r in ranges for kib in range(r.offset // _KIB, -(-r.end // _KIB))]


@dataclass
class FakeTier:
    """A tier of a fixed size that takes promoted bytes. `broken` is why it cannot be used, if it cannot."""

    name: str = "fake0"
    capacity_bytes: int = 1 << 20
    read_gbps: float | None = None
    broken: str | None = None
    closed: int = 0

    def probe(self) -> TierInfo:
        """Return its size, all of it free. Raises OptanedError when it is `broken`."""
        if self.broken is not None:
            raise OptanedError(f"{self.name}: {self.broken}")
        size = self.capacity_bytes
        return TierInfo(self.name, "fake", TierKind.BYTE, size, size, read_gbps=self.read_gbps)

    def open_mover(self, pages: Pages) -> Mover:
        """Return a mover that keeps to the size."""
        return FakeMover(self, pages)

    def close(self) -> None:
        self.closed += 1


class FakeMover:
    """Moves into a `FakeTier` until it is full."""

    def __init__(self, tier: FakeTier, pages: Pages) -> None:
        self._tier = tier
        self._pages = pages
        self._held_bytes = 0

    def promote(self, ranges: Sequence[ByteRange]) -> Moved:
        """Promote range by range while they fit."""
        moved = 0
        for part in ranges:
            if self._held_bytes + part.size_bytes > self._tier.capacity_bytes:
                return Moved(moved, f"{self._tier.name} is full")
            done = self._pages.promote([part], numa_node=None)
            self._held_bytes += done.size_bytes
            moved += done.size_bytes
            if done.fault is not None:
                return Moved(moved, done.fault)
        return Moved(moved)

    def demote(self, ranges: Sequence[ByteRange]) -> Moved:
        """Give ranges back."""
        done = self._pages.demote(ranges)
        self._held_bytes -= done.size_bytes
        return done

    def close(self) -> None:
        """Nothing is held but the pages."""


class TierContract:
    """Inherit and define `make_tier`; pytest runs each test against your tier."""

    def make_tier(self, folder: Path) -> Tier:
        """Return a tier that can be used; `folder` is an empty one to build its surroundings in."""
        raise NotImplementedError

    def test_a_probe_tells_its_name_and_what_is_free(self, tmp_path: Path) -> None:
        tier = self.make_tier(tmp_path)
        found = tier.probe()
        assert isinstance(found, TierInfo)
        assert found.name
        assert found.driver
        assert 0 <= found.free_bytes <= found.capacity_bytes
        assert found.read_gbps is None or found.read_gbps > 0
        assert all(note and "\n" not in note for note in found.notes)

    def test_a_probe_changes_nothing(self, tmp_path: Path) -> None:
        tier = self.make_tier(tmp_path)
        before = _listing(tmp_path)
        first, second = tier.probe(), tier.probe()
        assert _listing(tmp_path) == before
        assert (first.name, first.kind, first.mount) == (second.name, second.kind, second.mount)

    def test_it_may_be_closed_twice(self, tmp_path: Path) -> None:
        tier = self.make_tier(tmp_path)
        tier.close()
        tier.close()

    def test_what_is_promoted_is_told_once_and_comes_back(self, tmp_path: Path) -> None:
        opened = self._mover(tmp_path)
        if opened is None:
            return
        mover, pages = opened
        parts = [ByteRange(0, 0, 8 * _KIB), ByteRange(1, 4 * _KIB, 4 * _KIB)]
        assert mover.promote(parts) == Moved(12 * _KIB)
        assert mover.promote(parts) == Moved(0)
        assert pages.resident_bytes == 12 * _KIB
        assert mover.demote(parts) == Moved(12 * _KIB)
        assert mover.demote(parts) == Moved(0)
        assert pages.resident_bytes == 0
        mover.close()

    def test_it_says_when_memory_runs_out(self, tmp_path: Path) -> None:
        opened = self._mover(tmp_path, room_bytes=64 * _KIB)
        if opened is None:
            return
        mover, pages = opened
        moved = mover.promote([ByteRange(0, 0, 128 * _KIB)])
        assert moved.fault
        assert "\n" not in moved.fault
        assert moved.size_bytes == pages.resident_bytes <= 64 * _KIB

    def test_a_fault_of_the_kernel_is_passed_on(self, tmp_path: Path) -> None:
        opened = self._mover(tmp_path, room_bytes=8 * _KIB)
        if opened is None:
            return
        mover, pages = opened
        moved = mover.promote(
            [ByteRange(0, 0, 4 * _KIB), ByteRange(0, 4 * _KIB, 4 * _KIB), ByteRange(0, 8 * _KIB, _KIB)]
        )
        assert moved.size_bytes == pages.resident_bytes == 8 * _KIB
        assert moved.fault
        mover.demote([ByteRange(0, 0, 4 * _KIB)])
        assert mover.promote([ByteRange(0, 8 * _KIB, _KIB)]) == Moved(_KIB)

    def _mover(self, folder: Path, room_bytes: int = 1 << 60) -> tuple[Mover, FakePages] | None:
        """Return a mover and its pages; None for a tier that takes no promoted bytes."""
        tier = self.make_tier(folder)
        pages = FakePages(room_bytes)
        return (tier.open_mover(pages), pages) if isinstance(tier, Movable) else None


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(p), p.lstat().st_size, p.lstat().st_mtime_ns) for p in folder.rglob("*"))
