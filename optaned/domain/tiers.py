"""Tiers as they were probed, and the plan that puts every byte of a model on exactly one of them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from optaned.domain.model import Group


class TierKind(enum.StrEnum):
    """How bytes are reached: `byte` in place (DRAM, PMem), `block` in pages through a device, `device` by a GPU."""

    BYTE = "byte"
    BLOCK = "block"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Offload:
    """What a backend places on a device while it loads: the last `layers` layers (None: all) and the output.

    `keep` are regular expressions of tensor names that stay in main memory all the same; routed experts always do.
    """

    device: str
    layers: int | None = None
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TierInfo:
    """What a tier driver found. `free_bytes` is what may still be used, after the reserve; bandwidth None: unknown.

    `dimms` are the modules behind it, where they are known; `notes` is what people should know, a sentence each;
    `offload` is what a device takes.
    """

    name: str
    driver: str
    kind: TierKind
    capacity_bytes: int
    free_bytes: int
    read_gbps: float | None = None
    numa_node: int | None = None
    mount: Path | None = None
    dimms: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    offload: Offload | None = None

    def holds(self, path: Path) -> bool:
        """Say whether a file lies on this tier's mount."""
        return self.mount is not None and path.is_relative_to(self.mount)


def home_of(path: Path, tiers: Iterable[TierInfo]) -> TierInfo | None:
    """Return the tier on which a file lies: of the mounts that hold it, the innermost. None where no tier does."""
    holding = [tier for tier in tiers if tier.holds(path)]
    return max(holding, key=lambda tier: len(tier.mount.parts) if tier.mount else 0, default=None)


@dataclass(frozen=True, slots=True)
class Allotment:
    """Bytes of one group on one tier. `home` says that they lie there already; else they are to be promoted to it.

    What is promoted is named: `tensors` by their number in the index (trunk), `experts` by their flat number (see
    `ModelIndex.expert_layers`), in the order in which they should move.
    """

    tier: str
    group: Group
    size_bytes: int
    home: bool
    tensors: tuple[int, ...] = ()
    experts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Where every byte of a model is read from, and where the KV cache lives."""

    allotments: tuple[Allotment, ...]
    kv_tier: str
    kv_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(a.size_bytes for a in self.allotments)

    @property
    def promotions(self) -> tuple[Allotment, ...]:
        """Return what is to be moved before the model answers."""
        return tuple(a for a in self.allotments if not a.home)

    def group_bytes(self, group: Group) -> int:
        """Return what this plan allots of one group."""
        return sum(a.size_bytes for a in self.allotments if a.group is group)

    def claimed_bytes(self, tier: str) -> int:
        """Return what this plan takes of a tier's free bytes: promoted weights and KV cache, not what lies there."""
        promoted = sum(a.size_bytes for a in self.allotments if a.tier == tier and not a.home)
        return promoted + (self.kv_bytes if tier == self.kv_tier else 0)

    def used_bytes(self, tier: str) -> int:
        """Return what this plan puts on a tier, the KV cache included."""
        return sum(a.size_bytes for a in self.allotments if a.tier == tier) + (
            self.kv_bytes if tier == self.kv_tier else 0
        )
