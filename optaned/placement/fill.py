"""Fill tiers in order: the KV cache, then the trunk, then experts as a policy orders them; the rest stays at home.

A policy is then little more than an order of experts. Knows no heat. Vectorised over experts, for a model may have 82,432.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optaned.domain.model import Group, ModelIndex
from optaned.domain.tiers import Allotment, PlacementPlan, TierInfo, TierKind, home_of
from optaned.errors import ConfigError
from optaned.placement.arrays import Integers
from optaned.placement.devices import placed_on
from optaned.placement.reads import read_order
from optaned.units import format_bytes


@dataclass(frozen=True, slots=True)
class _Part:
    """Numbers that one tier takes, and their bytes by home."""

    tier: str
    numbers: tuple[int, ...]
    by_home: Counter[str]


def fill_tiers(
    index: ModelIndex,
    tiers: Sequence[TierInfo],
    *,
    promote_to: Sequence[str],
    kv_bytes: int,
    experts: ArrayLike = (),
    notes: Sequence[str] = (),
) -> PlacementPlan:
    """Return the plan that fills `promote_to`, the best first, with the trunk and then with `experts` (flat numbers).

    The KV cache is reserved first. A trunk that does not fit is taken by whole tensors in the order in which a token reads
    them. Raises ConfigError for a shard on no tier, a target that is a disk, and a cache that fits nowhere.
    """
    homes = shard_homes(index, tiers)
    kv_tier = cache_tier(tiers, promote_to, kv_bytes)
    room = _room(tiers, promote_to, kv_tier, kv_bytes)
    devices = _fill_devices(index, homes, [tier for tier in tiers if tier.name in promote_to])
    placed = {number for part in devices for number in part.numbers}
    trunk = devices + _fill_trunk(index, homes, room, placed)
    routed = _fill_experts(index, homes, room, np.asarray(experts, dtype=np.int64))
    allotments = [*_promotions(trunk, Group.TRUNK), *_promotions(routed, Group.EXPERT)]
    allotments += _what_stays(index, homes, trunk, routed)
    return PlacementPlan(tuple(allotments), kv_tier, kv_bytes, (*_trunk_note(index, trunk, promote_to), *notes))


def shard_homes(index: ModelIndex, tiers: Sequence[TierInfo]) -> tuple[str, ...]:
    """Return the home tier's name of each shard. Raises ConfigError where one lies on no tier."""
    homes = []
    for shard in index.shards:
        home = home_of(shard.lies_at, tiers)
        if home is None:
            raise ConfigError(
                f'{shard.lies_at}: lies on no tier; add a [tiers] table whose mount holds it (driver "file" for a disk)'
            )
        homes.append(home.name)
    return tuple(homes)


def cache_tier(tiers: Sequence[TierInfo], promote_to: Sequence[str], kv_bytes: int) -> str:
    """Return the first byte-addressable tier that fits the cache: in the order of `promote_to`, then DRAM before PMem."""
    order = {name: place for place, name in enumerate(promote_to)}
    able = [tier for tier in tiers if tier.kind is TierKind.BYTE]
    if not able:
        raise ConfigError('no byte-addressable tier for the KV cache; add a [tiers] table with driver = "memory"')
    able.sort(key=lambda tier: (order.get(tier.name, len(order)), tier.mount is not None))
    for tier in able:
        if tier.free_bytes >= kv_bytes:
            return tier.name
    best = max(able, key=lambda tier: tier.free_bytes)
    raise ConfigError(
        f"the KV cache needs {format_bytes(kv_bytes)}, but {best.name} has {format_bytes(best.free_bytes)} "
        "free; lower context or engine.slots, or choose a smaller kv_cache"
    )


def _room(tiers: Sequence[TierInfo], promote_to: Sequence[str], kv_tier: str, kv_bytes: int) -> dict[str, int]:
    found = {tier.name: tier for tier in tiers}
    room = {}
    for name in promote_to:
        if name not in found:
            raise ConfigError(f"placement.promote_to: there is no tier {name!r}; tiers: {', '.join(sorted(found))}")
        if found[name].kind is TierKind.BLOCK:
            raise ConfigError(f"placement.promote_to: {name} is a disk; name tiers of memory only")
        if found[name].kind is TierKind.DEVICE:
            continue  # takes what its own rule says, and nothing later
        room[name] = max(0, found[name].free_bytes - (kv_bytes if name == kv_tier else 0))
    return room


def _fill_devices(index: ModelIndex, homes: tuple[str, ...], tiers: Sequence[TierInfo]) -> list[_Part]:
    """What a backend places while it loads. A tensor that two devices would take goes to the first."""
    taken: set[int] = set()
    parts = []
    for tier in tiers:
        numbers = tuple(number for number in placed_on(index, tier) if number not in taken)
        taken.update(numbers)
        by_home: Counter[str] = Counter()
        for number in numbers:
            place = index.tensors[number].place
            by_home[homes[place.shard]] += place.size_bytes
        if numbers:
            parts.append(_Part(tier.name, numbers, by_home))
    return parts


def _fill_trunk(index: ModelIndex, homes: tuple[str, ...], room: dict[str, int], placed: Set[int]) -> list[_Part]:
    """Each tensor that is on no device goes to the first tier that has room for it; what lies there already stays."""
    taken: dict[str, list[int]] = {name: [] for name in room}
    by_home: dict[str, Counter[str]] = {name: Counter() for name in room}
    for number in read_order(index):
        if number in placed:
            continue
        place = index.tensors[number].place
        tier = next((name for name, left in room.items() if left >= place.size_bytes), None)
        if tier is None or tier == homes[place.shard]:
            continue
        room[tier] -= place.size_bytes
        taken[tier].append(number)
        by_home[tier][homes[place.shard]] += place.size_bytes
    return [_Part(name, tuple(numbers), by_home[name]) for name, numbers in taken.items() if numbers]


def _fill_experts(index: ModelIndex, homes: tuple[str, ...], room: dict[str, int], experts: Integers) -> list[_Part]:
    """Each tier takes as many of the experts as fit, in order; the next tier goes on where it stopped."""
    if not experts.size:
        return []
    sizes = np.asarray(index.expert_sizes, dtype=np.int64)
    parts_by_row = [_expert_homes(index, homes, layer) for layer in index.expert_layers]
    parts = []
    for name, left in room.items():
        at_home = np.array([set(found) == {name} for found in parts_by_row])
        able = ~at_home[experts // index.expert_count]
        rows = experts[able] // index.expert_count
        fitting = int(np.searchsorted(np.cumsum(sizes[rows]), left, side="right"))
        taken = np.flatnonzero(able)[:fitting]
        by_home: Counter[str] = Counter()
        for row, count in enumerate(np.bincount(rows[:fitting], minlength=len(parts_by_row)).tolist()):
            for home, size in parts_by_row[row].items():
                by_home[home] += count * size
        if fitting:
            parts.append(_Part(name, tuple(experts[taken].tolist()), by_home))
        room[name] -= by_home.total()
        experts = np.delete(experts, taken)
    return parts


def _expert_homes(index: ModelIndex, homes: tuple[str, ...], layer: int) -> Counter[str]:
    """Return the bytes of one expert of a layer by home tier: its slices may lie in several shards."""
    found: Counter[str] = Counter()
    for part in index.expert_ranges(layer, 0):
        found[homes[part.shard]] += part.size_bytes
    return found


def _promotions(parts: list[_Part], group: Group) -> list[Allotment]:
    return [
        Allotment(
            part.tier,
            group,
            part.by_home.total(),
            home=False,
            tensors=part.numbers if group is Group.TRUNK else (),
            experts=part.numbers if group is Group.EXPERT else (),
        )
        for part in parts
    ]


def _what_stays(index: ModelIndex, homes: tuple[str, ...], trunk: list[_Part], routed: list[_Part]) -> list[Allotment]:
    lying: Counter[tuple[str, Group]] = Counter()
    for tensor in index.tensors:
        lying[homes[tensor.place.shard], tensor.group] += tensor.place.size_bytes
    for group, parts in ((Group.TRUNK, trunk), (Group.EXPERT, routed)):
        for part in parts:
            for home, size in part.by_home.items():
                lying[home, group] -= size
    return [Allotment(home, group, size, home=True) for (home, group), size in sorted(lying.items()) if size]


def _trunk_note(index: ModelIndex, trunk: list[_Part], promote_to: Sequence[str]) -> tuple[str, ...]:
    missing = index.trunk_bytes - sum(part.by_home.total() for part in trunk)
    if not promote_to or not missing:
        return ()
    return (
        f"{format_bytes(missing)} of the trunk ({format_bytes(index.trunk_bytes)}) stay at home and are read there "
        "for every token",
    )
