"""Placement policy `home`: every weight is read where it lies; nothing is promoted. Pure.

The baseline that other policies are compared with, and what to use while a tier cannot take promoted bytes.
"""

from __future__ import annotations

from collections import Counter

from optaned.api import (
    Allotment,
    ConfigError,
    Driver,
    Env,
    Group,
    Options,
    PlacementPlan,
    PlanRequest,
    TierInfo,
    TierKind,
    format_bytes,
    home_of,
    hookimpl,
)

OPTANED_API = (1, 0)


class HomeOptions(Options):
    """This policy has nothing to set."""


class HomePolicy:
    """Leaves all weights at home and puts the KV cache into DRAM."""

    def plan(self, request: PlanRequest) -> PlacementPlan:
        """Return the plan. Raises ConfigError for a shard on no tier, and where nothing can hold the KV cache."""
        homes = {number: _home(request, number) for number in range(len(request.index.shards))}
        sizes: Counter[tuple[str, Group]] = Counter()
        for tensor in request.index.tensors:
            sizes[homes[tensor.place.shard].name, tensor.group] += tensor.place.size_bytes
        allotments = tuple(Allotment(tier, group, size, home=True) for (tier, group), size in sorted(sizes.items()))
        blocks = sorted({home.name for home in homes.values() if home.kind is TierKind.BLOCK})
        note = f"weights on {', '.join(blocks)} are read through the page cache, which takes what DRAM is left"
        return PlacementPlan(allotments, _kv_tier(request), request.kv_bytes, (note,) if blocks else ())


def _home(request: PlanRequest, shard: int) -> TierInfo:
    path = request.index.shards[shard].lies_at
    home = home_of(path, request.tiers)
    if home is None:
        raise ConfigError(
            f'{path}: lies on no tier; add a [tiers] table whose mount holds it (driver "file" for a disk)'
        )
    return home


def _kv_tier(request: PlanRequest) -> str:
    """Return the first fitting byte-addressable tier: in the order of `promote_to`, then DRAM before PMem."""
    order = {name: place for place, name in enumerate(request.promote_to)}
    able = [tier for tier in request.tiers if tier.kind is TierKind.BYTE]
    if not able:
        raise ConfigError('no byte-addressable tier for the KV cache; add a [tiers] table with driver = "memory"')
    able.sort(key=lambda tier: (order.get(tier.name, len(order)), tier.mount is not None))
    for tier in able:
        if tier.free_bytes >= request.kv_bytes:
            return tier.name
    best = max(able, key=lambda tier: tier.free_bytes)
    raise ConfigError(
        f"the KV cache needs {format_bytes(request.kv_bytes)}, but {best.name} has {format_bytes(best.free_bytes)} "
        "free; lower context or engine.slots, or choose a smaller kv_cache"
    )


def _open(name: str, options: HomeOptions, env: Env) -> HomePolicy:  # noqa: ARG001  the signature is the contract
    return HomePolicy()


@hookimpl
def optaned_placement_policies() -> list[Driver]:
    """Declare the policy `home`."""
    return [Driver("home", HomeOptions, _open, "every weight is read where it lies; nothing is promoted")]
