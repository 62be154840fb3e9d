"""What every plan must keep to, whichever policy made it. Pure.

Every byte on exactly one tier, nothing said to be at home that does not lie there, everything that is to move named once and
with its true size, no tier overfull after its reserve, and the KV cache where it can be addressed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from optaned.domain.model import Group, ModelIndex
from optaned.domain.tiers import Allotment, PlacementPlan, TierInfo, TierKind, home_of
from optaned.units import format_bytes


def faults_of(plan: PlacementPlan, index: ModelIndex, tiers: Sequence[TierInfo], kv_bytes: int) -> list[str]:
    """Return one line for each rule that the plan breaks."""
    known = {tier.name: tier for tier in tiers}
    unknown = sorted({a.tier for a in plan.allotments} | {plan.kv_tier})
    faults = [f"it names the tier {name!r}, which does not exist" for name in unknown if name not in known]
    faults += [f"it allots {a.size_bytes} B on {a.tier}" for a in plan.allotments if a.size_bytes < 0]
    faults += _coverage(plan, index) + _names(plan, index) + _homes(plan, index, tiers)
    faults += [line for tier in tiers for line in _room(plan, tier)]
    return faults + _cache(plan, kv_bytes, known.get(plan.kv_tier))


def _coverage(plan: PlacementPlan, index: ModelIndex) -> list[str]:
    faults = []
    for group in Group:
        wanted, placed = index.group_bytes(group), plan.group_bytes(group)
        if wanted != placed:
            faults.append(
                f"it places {placed} B of {group}, the model has {wanted} B: each byte lies on exactly one tier"
            )
    return faults


def _names(plan: PlacementPlan, index: ModelIndex) -> list[str]:
    """Whatever is to move is named, exists, is of the allotment's group, is named once, and has the size that is said."""
    faults = _named_once("tensor", (number for a in plan.allotments for number in a.tensors))
    faults += _named_once("expert", (number for a in plan.allotments for number in a.experts))
    for allotment in plan.allotments:
        if allotment.home and (allotment.tensors or allotment.experts):
            faults.append(f"it names what stays at home on {allotment.tier}; name only what moves")
        elif not allotment.home:
            faults += _sizes(allotment, index)
    return faults


def _named_once(what: str, numbers: Iterable[int]) -> list[str]:
    twice = sorted(number for number, count in Counter(numbers).items() if count > 1)
    return [f"it moves {what} {twice[0]} twice"] if twice else []


def _sizes(allotment: Allotment, index: ModelIndex) -> list[str]:
    where = f"{allotment.group} to {allotment.tier}"
    try:
        named = _named_bytes(allotment, index)
    except IndexError as error:
        return [f"it moves {where}: {error}"]
    if named == allotment.size_bytes:
        return []
    return [f"it moves {allotment.size_bytes} B of {where}, but what it names has {named} B"]


def _named_bytes(allotment: Allotment, index: ModelIndex) -> int:
    """Return the bytes of what an allotment names. Raises IndexError for a number that is none of its group's."""
    if allotment.group is Group.EXPERT:
        if allotment.tensors:
            raise IndexError("tensors are named, experts are meant")
        last = len(index.expert_layers) * index.expert_count
        if wrong := [number for number in allotment.experts if not 0 <= number < last]:
            raise IndexError(f"there is no expert {wrong[0]}")
        rows = Counter(number // index.expert_count for number in allotment.experts)
        return sum(index.expert_sizes[row] * count for row, count in rows.items())
    if allotment.experts:
        raise IndexError("experts are named, tensors are meant")
    for number in allotment.tensors:
        if not 0 <= number < len(index.tensors) or index.tensors[number].group is not Group.TRUNK:
            raise IndexError(f"there is no tensor {number} in it")
    return sum(index.tensors[number].place.size_bytes for number in allotment.tensors)


def _homes(plan: PlacementPlan, index: ModelIndex, tiers: Sequence[TierInfo]) -> list[str]:
    lying: Counter[tuple[str, Group]] = Counter()
    for tensor in index.tensors:
        home = home_of(index.shards[tensor.place.shard].lies_at, tiers)
        lying[home.name if home else "", tensor.group] += tensor.place.size_bytes
    claimed: Counter[tuple[str, Group]] = Counter()
    for allotment in plan.allotments:
        if allotment.home:
            claimed[allotment.tier, allotment.group] += allotment.size_bytes
    return [
        f"it leaves {format_bytes(size)} of {group} at home on {tier}, where {format_bytes(lying[tier, group])} lie"
        for (tier, group), size in claimed.items()
        if size > lying[tier, group]
    ]


def _room(plan: PlacementPlan, tier: TierInfo) -> list[str]:
    claimed = plan.claimed_bytes(tier.name)
    if claimed <= tier.free_bytes:
        return []
    return [f"it puts {format_bytes(claimed)} on {tier.name}, which has {format_bytes(tier.free_bytes)} free"]


def _cache(plan: PlacementPlan, kv_bytes: int, tier: TierInfo | None) -> list[str]:
    faults = []
    if plan.kv_bytes != kv_bytes:
        faults.append(f"it plans {plan.kv_bytes} B for the KV cache, which needs {kv_bytes} B")
    if tier is not None and tier.kind is not TierKind.BYTE:
        faults.append(f"it puts the KV cache on {tier.name}, which is not byte-addressable")
    return faults
