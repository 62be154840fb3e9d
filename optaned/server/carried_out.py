"""From a plan to what the engine is told to carry out: tiers that take bytes, what goes where, how homes are reached."""

from __future__ import annotations

import logging

from optaned.config.resolve import ResolvedConfig
from optaned.domain.tiers import PlacementPlan, TierInfo, TierKind, home_of
from optaned.engine.messages import Placement, Promotion, TierSpec
from optaned.hooks.drivers import Env, Scores
from optaned.pipeline.run import Prepared
from optaned.residency.preflight import check_overcommit

log = logging.getLogger("optaned.server")


def placement_of(resolved: ResolvedConfig, prepared: Prepared) -> Placement | None:
    """Return the engine's part of a plan; None for a model without files.

    Raises ConfigError, before anything is loaded, where this kernel would refuse to map a model for moving.
    """
    index, plan = prepared.index, prepared.plan
    if index is None or plan is None:
        return None
    homes = [home_of(shard.lies_at, prepared.tiers) for shard in index.shards]
    takers = _takers(resolved, prepared.tiers, plan)
    names = {spec.name for spec in takers}
    if takers:
        check_overcommit()
    return Placement(
        digest=index.digest,
        homes=tuple("byte" if home is not None and home.kind is TierKind.BYTE else "block" for home in homes),
        home_tiers=tuple("" if home is None else home.name for home in homes),
        tiers=takers,
        devices=_specs(resolved, prepared.tiers, plan, TierKind.DEVICE),
        promotions=tuple(Promotion(a.tier, a.tensors, a.experts) for a in plan.promotions if a.tier in names),
        policy=resolved.policy.driver.name,
        policy_options=resolved.policy.options.model_dump(mode="json"),
        move_gbps=resolved.config.placement.move_gbps,
        heat_path=None if prepared.heat_path is None else str(prepared.heat_path),
    )


def _takers(resolved: ResolvedConfig, tiers: tuple[TierInfo, ...], plan: PlacementPlan) -> tuple[TierSpec, ...]:
    """Return the tiers that bytes are moved to; none where the policy neither promotes nor goes on deciding."""
    if not plan.promotions and not isinstance(resolved.policy.open(Env(log=log)), Scores):
        return ()
    return _specs(resolved, tiers, plan, TierKind.BYTE)


def _specs(
    resolved: ResolvedConfig, tiers: tuple[TierInfo, ...], plan: PlacementPlan, kind: TierKind
) -> tuple[TierSpec, ...]:
    """Return the tiers of `promote_to` of one kind, in order."""
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
        if tier.kind is kind
    )
