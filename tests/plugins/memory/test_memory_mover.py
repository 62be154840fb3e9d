"""Bytes move into DRAM within the tier's budget and what the kernel has left, on the node that the tier names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optaned.api import ByteRange, Env, Movable
from optaned.testing.tier_contract import FakePages, TierContract
from optaned_memory import MemoryOptions, MemoryTier

MIB = 1 << 20


def tier(root: Path, *, total_mib: int = 4096, available_mib: int = 4096, **options: Any) -> MemoryTier:
    meminfo = root / "proc/meminfo"
    meminfo.parent.mkdir(parents=True, exist_ok=True)
    meminfo.write_text(f"MemTotal: {total_mib * 1024} kB\nMemAvailable: {available_mib * 1024} kB\n")
    node = root / "sys/devices/system/node/node1/meminfo"
    node.parent.mkdir(parents=True, exist_ok=True)
    node.write_text(f"Node 1 MemTotal: {total_mib * 1024} kB\nNode 1 MemFree: {available_mib * 1024} kB\n")
    return MemoryTier("dram0", MemoryOptions(**options), Env(sysroot=root))


class TestMemoryHoldsTheContract(TierContract):
    def make_tier(self, folder: Path) -> MemoryTier:
        return tier(folder)


def test_it_takes_promoted_bytes(tmp_path: Path) -> None:
    assert isinstance(tier(tmp_path), Movable)


def test_the_budget_is_not_exceeded_by_many_small_moves(tmp_path: Path) -> None:
    pages = FakePages()
    mover = tier(tmp_path, budget="10MiB").open_mover(pages)
    moves = [mover.promote([ByteRange(0, n * MIB, MIB)]) for n in range(12)]
    assert [m.fault is None for m in moves] == [True] * 10 + [False] * 2
    assert "dram0: 1 MiB do not fit, 0 B are left" in (moves[-1].fault or "")
    mover.demote([ByteRange(0, 0, MIB)])
    assert mover.promote([ByteRange(0, 11 * MIB, MIB)]).fault is None
    assert pages.resident_bytes == 10 * MIB


def test_a_long_move_stops_where_the_budget_ends(tmp_path: Path) -> None:
    pages = FakePages()
    moved = tier(tmp_path, budget="100MiB").open_mover(pages).promote([ByteRange(0, 0, 128 * MIB)])
    assert moved.size_bytes == pages.resident_bytes == 64 * MIB
    assert "64 MiB do not fit, 36 MiB are left" in (moved.fault or "")


def test_a_machine_that_runs_out_of_memory_takes_no_more(tmp_path: Path) -> None:
    pages = FakePages()
    opened = tier(tmp_path, budget="1GiB")
    mover = opened.open_mover(pages)
    assert mover.promote([ByteRange(0, 0, MIB)]).fault is None
    tier(tmp_path, available_mib=82)  # somebody else took it: less than the fiftieth that stays free
    moved = mover.promote([ByteRange(0, MIB, MIB)])
    assert moved.size_bytes == 0
    assert "are left" in (moved.fault or "")


def test_bytes_go_to_the_tiers_node(tmp_path: Path) -> None:
    pages = FakePages()
    tier(tmp_path, numa_node=1).open_mover(pages).promote([ByteRange(0, 0, MIB)])
    assert pages.nodes == [1]


def test_a_kernel_that_stops_telling_is_a_fault_not_a_crash(tmp_path: Path) -> None:
    mover = tier(tmp_path).open_mover(FakePages())
    (tmp_path / "proc/meminfo").unlink()
    moved = mover.promote([ByteRange(0, 0, MIB)])
    assert moved.size_bytes == 0
    assert "dram0: " in (moved.fault or "")
