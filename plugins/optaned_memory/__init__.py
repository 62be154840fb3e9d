"""Tier driver `memory`: DRAM, all of it or one NUMA node (CXL and kmem memory are nodes without cores).

Knows its options and how they turn what is there into what may be used; what is there, `inventory` reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator

from optaned.api import (
    Bytes,
    ConfigError,
    Driver,
    Env,
    Mover,
    Options,
    Pages,
    TierInfo,
    TierKind,
    format_bytes,
    hookimpl,
)
from optaned_memory.inventory import Inventory, take_inventory
from optaned_memory.memory_mode import MemoryModeOptions, MemoryModeTier
from optaned_memory.mover import MemoryMover

OPTANED_API = (1, 0)

# Without `budget` or `reserve`: what the system, page tables and compute buffers are left.
DEFAULT_RESERVE_SHARE = 0.1
# What moves leave free whatever the budget says, as a share and at most: a kernel that has nothing left kills or swaps.
_FLOOR_SHARE, _FLOOR_BYTES = 0.02, 1 << 30


class MemoryOptions(Options):
    numa_node: Annotated[int, Field(ge=0)] | None = None
    """NUMA node whose memory this is; without it, the whole machine's."""
    budget: Bytes | None = None
    """How much of it may be used."""
    reserve: Bytes | None = None
    """How much of it is left to everything else; a tenth where neither this nor `budget` is set."""

    @model_validator(mode="after")
    def _one_of_two(self) -> MemoryOptions:
        if self.budget is not None and self.reserve is not None:
            raise ValueError("budget and reserve exclude each other; keep one")
        return self


@dataclass(frozen=True)
class MemoryTier:
    """DRAM as the kernel counts it, less what must stay free."""

    name: str
    options: MemoryOptions
    env: Env

    def probe(self) -> TierInfo:
        """Return total and usable memory. Raises OptanedError for a node that is not there or an option too large."""
        found = take_inventory(self.env, self.options.numa_node)
        usable = self._usable_bytes(found)
        return TierInfo(
            name=self.name,
            driver="memory",
            kind=TierKind.BYTE,
            capacity_bytes=found.total_bytes,
            free_bytes=max(0, min(usable, found.available_bytes)),
            numa_node=self.options.numa_node,
        )

    def open_mover(self, pages: Pages) -> Mover:
        """Return a mover that keeps to the budget, and leaves a little free where the machine runs short of memory."""
        return MemoryMover(self.name, pages, self.options.numa_node, self._room)

    def close(self) -> None:
        """Nothing is held open."""

    def _room(self, held_bytes: int) -> int:
        """Return how many bytes may still come. Raises OptanedError."""
        found = take_inventory(self.env, self.options.numa_node)
        floor = min(_FLOOR_BYTES, int(found.total_bytes * _FLOOR_SHARE))
        return min(self._usable_bytes(found) - held_bytes, found.available_bytes - floor)

    def _usable_bytes(self, found: Inventory) -> int:
        budget, reserve = self.options.budget, self.options.reserve
        if reserve is None:
            reserve = int(found.total_bytes * DEFAULT_RESERVE_SHARE)
        wanted, key = (reserve, "reserve") if budget is None else (budget, "budget")
        if wanted > found.total_bytes:
            raise ConfigError(
                f"{key}: {format_bytes(wanted)} is more than there is "
                f"({format_bytes(found.total_bytes)}, {found.limited_by}); lower it"
            )
        return found.total_bytes - reserve if budget is None else budget


@hookimpl
def optaned_tiers() -> list[Driver]:
    """Declare the tier drivers `memory` and `memory-mode`."""
    return [
        Driver("memory", MemoryOptions, MemoryTier, "DRAM: the machine's, one NUMA node's, or CXL memory"),
        Driver(
            "memory-mode", MemoryModeOptions, MemoryModeTier, "PMem as the machine's main memory, DRAM as its cache"
        ),
    ]
