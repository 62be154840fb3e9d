"""From a plan to what the engine is told to carry out: tiers that take bytes, what goes where, how homes are reached."""

from __future__ import annotations

import logging

from optaned.config.resolve import ResolvedConfig
from optaned.domain.model import ModelIndex
from optaned.domain.tiers import PlacementPlan, TierInfo, TierKind, home_of
from optaned.engine.messages import Placement, Promotion, TierSpec
from optaned.hooks.drivers import Env, Scores
from optaned.pipeline.run import Prepared

log = logging.getLogger("optaned.server")


def placement_of(resolved: ResolvedConfig, prepared: Prepared) -> Placement | None:
    """Return the engine's part of a plan; None for a model without files."""
    index, plan = prepared.index, prepared.plan
    if index is None or plan is None:
        return None
    homes = [home_of(shard.lies_at, prepared.tiers) for shard in index.shards]
    return Placement(
        digest=index.digest,
        homes=tuple("byte" if home is not None and home.kind is TierKind.BYTE else "block" for home in homes),
        home_tiers=tuple("" if home is None else home.name for home in homes),
        tiers=_takers(resolved, prepared.tiers, plan),
        promotions=tuple(Promotion(a.tier, a.tensors, a.experts) for a in plan.promotions),
        policy=resolved.policy.driver.name,
        policy_options=resolved.policy.options.model_dump(mode="json"),
        move_gbps=resolved.config.placement.move_gbps,
        heat_path=_heat_path(prepared, index),
    )


def _takers(resolved: ResolvedConfig, tiers: tuple[TierInfo, ...], plan: PlacementPlan) -> tuple[TierSpec, ...]:
    """Return the tiers of `promote_to`, in order; none where the policy neither promotes nor goes on deciding."""
    if not plan.promotions and not isinstance(resolved.policy.open(Env(log=log)), Scores):
        return ()
    found = {tier.name: tier for tier in tiers}
    named = [(found[name], resolved.tiers[name]) for name in resolved.config.placement.promote_to]
    return tuple(
        TierSpec(
            name=tier.name,
            driver=driver.driver.name,
            options=driver.options.model_dump(mode="json"),
            numa_node=tier.numa_node,
            budget_bytes=max(0, tier.free_bytes - (plan.kv_bytes if tier.name == plan.kv_tier else 0)),
        )
        for tier, driver in named
        if tier.kind is TierKind.BYTE
    )


def _heat_path(prepared: Prepared, index: ModelIndex) -> str | None:
    return str(prepared.heat_path) if prepared.heat_path is not None and index.expert_layers else None
