"""Tier driver `memory-mode`: PMem that the machine uses as its main memory, with DRAM as its cache.

The memory controller decides by itself what DRAM holds, so that nothing can be promoted; the tier says so. Knows where
firmware tells of the mode; counts memory as the tier `memory` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from optaned.api import Bytes, Env, Options, TierInfo, TierKind, UnavailableError, format_bytes
from optaned_memory.inventory import take_inventory

_NODES = "/sys/devices/system/node"
_DMI = "/sys/firmware/dmi/entries"
# SMBIOS type 17: offsets of the memory technology and of the bytes that are used as memory.
_TECHNOLOGY, _VOLATILE_SIZE, _LENGTH = 0x28, 0x3C, 0x54
_OPTANE = 7


class MemoryModeOptions(Options):
    reserve: Bytes = 0
    """How much of it is left to everything else."""
    dimms: tuple[str, ...] = ()
    """Names of the PMem modules, where a sensor has to cover each."""
    assume: bool = False
    """Believe that the machine is in Memory Mode although its firmware does not say so."""


@dataclass(frozen=True)
class MemoryModeTier:
    """All memory of the machine; its `cache` is the DRAM."""

    name: str
    options: MemoryModeOptions
    env: Env

    def probe(self) -> TierInfo:
        """Return total and usable memory. Raises UnavailableError where nothing says that this is Memory Mode."""
        evidence = find_evidence(self.env)
        if evidence is None and not self.options.assume:
            raise UnavailableError(
                "nothing here says that PMem is in Memory Mode (no memory-side cache, no volatile PMem in the DMI table); "
                'look as root, set driver = "memory", or say assume = true'
            )
        found = take_inventory(self.env, None)
        usable = max(0, found.total_bytes - self.options.reserve)
        return TierInfo(
            name=self.name,
            driver="memory-mode",
            kind=TierKind.BYTE,
            capacity_bytes=found.total_bytes,
            free_bytes=min(usable, found.available_bytes),
            dimms=self.options.dimms,
            notes=(
                f"PMem in Memory Mode: {evidence or 'assumed'}",
                "DRAM is its cache and the memory controller fills it; nothing is promoted to this tier",
            ),
        )

    def close(self) -> None:
        """Nothing is held open."""


def find_evidence(env: Env) -> str | None:
    """Return what shows that PMem is the main memory: a cache before it, or modules that say so. None: nothing does."""
    cache = sum(_number(path) for path in env.path(_NODES).glob("node*/memory_side_cache/index*/size"))
    if cache:
        return f"a memory-side cache of {format_bytes(cache)}"
    modules = [size for size in map(_volatile_pmem, sorted(env.path(_DMI).glob("17-*/raw"))) if size]
    return f"{len(modules)} modules with {format_bytes(sum(modules))} used as memory" if modules else None


def _number(path: Path) -> int:
    text = _read(path).decode("ascii", "replace").strip()
    digits, unit = text.rstrip("KMG"), text[-1:]
    return int(digits) << {"K": 10, "M": 20, "G": 30}.get(unit, 0) if digits.isdigit() else 0


def _volatile_pmem(path: Path) -> int:
    record = _read(path)
    if len(record) < _LENGTH or record[_TECHNOLOGY] != _OPTANE:
        return 0
    return int.from_bytes(record[_VOLATILE_SIZE : _VOLATILE_SIZE + 8], "little")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # the DMI table is root's alone
