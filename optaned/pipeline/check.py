"""What every plan must keep to, whichever policy made it. Pure.

Every byte on exactly one tier, nothing said to be at home that does not lie there, no tier overfull after its reserve,
and the KV cache where it can be addressed.
"""

from __future__ import annotations

from collections import Counter

from optaned.domain.model import Group
from optaned.domain.tiers import PlacementPlan, TierInfo, TierKind, home_of
from optaned.hooks.drivers import PlanRequest
from optaned.units import format_bytes


def faults_of(plan: PlacementPlan, request: PlanRequest) -> list[str]:
    """Return one line for each rule that the plan breaks."""
    tiers = {tier.name: tier for tier in request.tiers}
    unknown = sorted({a.tier for a in plan.allotments} | {plan.kv_tier})
    faults = [f"it names the tier {name!r}, which does not exist" for name in unknown if name not in tiers]
    faults += [f"it allots {a.size_bytes} B on {a.tier}" for a in plan.allotments if a.size_bytes < 0]
    faults += _coverage(plan, request) + _homes(plan, request)
    faults += [line for tier in request.tiers for line in _room(plan, tier)]
    return faults + _cache(plan, request, tiers.get(plan.kv_tier))


def _coverage(plan: PlacementPlan, request: PlanRequest) -> list[str]:
    faults = []
    for group in Group:
        wanted, placed = request.index.group_bytes(group), plan.group_bytes(group)
        if wanted != placed:
            faults.append(
                f"it places {placed} B of {group}, the model has {wanted} B: each byte lies on exactly one tier"
            )
    return faults


def _homes(plan: PlacementPlan, request: PlanRequest) -> list[str]:
    lying: Counter[tuple[str, Group]] = Counter()
    for tensor in request.index.tensors:
        home = home_of(request.index.shards[tensor.place.shard].lies_at, request.tiers)
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


def _cache(plan: PlacementPlan, request: PlanRequest, tier: TierInfo | None) -> list[str]:
    faults = []
    if plan.kv_bytes != request.kv_bytes:
        faults.append(f"it plans {plan.kv_bytes} B for the KV cache, which needs {request.kv_bytes} B")
    if tier is not None and tier.kind is not TierKind.BYTE:
        faults.append(f"it puts the KV cache on {tier.name}, which is not byte-addressable")
    return faults
