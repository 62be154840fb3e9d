"""Memory Mode is believed when firmware says so; nothing is promoted to it, and it says that."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from optaned.api import Env, Movable, Tier, TierKind, UnavailableError
from optaned.testing.tier_contract import TierContract
from optaned_memory import optaned_tiers
from optaned_memory.memory_mode import MemoryModeOptions, MemoryModeTier, find_evidence

GIB = 1 << 30


def put(root: Path, name: str, content: str | bytes) -> None:
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def module(technology: int, volatile_bytes: int) -> bytes:
    """Return an SMBIOS record of type 17, as the kernel shows it raw."""
    record = bytearray(0x54)
    record[0], record[1] = 17, 0x54
    record[0x28] = technology
    record[0x3C:0x44] = struct.pack("<Q", volatile_bytes)
    return bytes(record)


def tier(root: Path, **options: Any) -> MemoryModeTier:
    put(root, "/proc/meminfo", "MemTotal: 1610612736 kB\nMemAvailable: 1572864000 kB\n")
    return MemoryModeTier("main", MemoryModeOptions(**options), Env(sysroot=root))


class TestMemoryModeHoldsTheContract(TierContract):
    def make_tier(self, folder: Path) -> Tier:
        return tier(folder, assume=True)


def test_a_memory_side_cache_is_evidence(tmp_path: Path) -> None:
    for node in (0, 1):
        put(tmp_path, f"/sys/devices/system/node/node{node}/memory_side_cache/index1/size", f"{96 * GIB}\n")
    found = tier(tmp_path, reserve="100GiB", dimms=("nmem0", "nmem1")).probe()
    assert (found.capacity_bytes, found.free_bytes) == (1536 * GIB, 1436 * GIB)
    assert (found.kind, found.dimms) == (TierKind.BYTE, ("nmem0", "nmem1"))
    assert found.notes[0] == "PMem in Memory Mode: a memory-side cache of 192 GiB"
    assert "nothing is promoted" in found.notes[1]


def test_modules_that_serve_as_memory_are_evidence(tmp_path: Path) -> None:
    put(tmp_path, "/sys/firmware/dmi/entries/17-0/raw", module(7, 128 * GIB))
    put(tmp_path, "/sys/firmware/dmi/entries/17-1/raw", module(7, 128 * GIB))
    put(tmp_path, "/sys/firmware/dmi/entries/17-2/raw", module(3, 0))
    assert find_evidence(Env(sysroot=tmp_path)) == "2 modules with 256 GiB used as memory"


def test_pmem_in_app_direct_mode_is_no_evidence(tmp_path: Path) -> None:
    put(tmp_path, "/sys/firmware/dmi/entries/17-0/raw", module(7, 0))
    put(tmp_path, "/sys/firmware/dmi/entries/17-1/raw", b"\x11\x22")
    with pytest.raises(UnavailableError, match=r'nothing here says that PMem is in Memory Mode.*driver = "memory"'):
        tier(tmp_path).probe()


def test_who_knows_better_may_say_so(tmp_path: Path) -> None:
    assert "assumed" in tier(tmp_path, assume=True).probe().notes[0]


def test_it_is_declared_and_takes_no_promoted_bytes(tmp_path: Path) -> None:
    driver = {d.name: d for d in optaned_tiers()}["memory-mode"]
    assert not isinstance(driver.open("main", MemoryModeOptions(), Env(sysroot=tmp_path)), Movable)
