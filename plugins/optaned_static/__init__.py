"""Placement policy `static`: the trunk, then the experts of one layer after another until the tiers are full. Pure.

Needs no heat and moves nothing later. Right where routing is uniform: then every expert is as good as another.
"""

from __future__ import annotations

from optaned.api import Driver, Env, Options, PlacementPlan, PlanRequest, fill_tiers, hookimpl

OPTANED_API = (1, 0)


class StaticOptions(Options):
    """This policy has nothing to set."""


class StaticPolicy:
    """Fills fast tiers in layer order."""

    def plan(self, request: PlanRequest) -> PlacementPlan:
        """Return the plan. Raises ConfigError for a shard on no tier, and where nothing can hold the KV cache."""
        index = request.index
        return fill_tiers(
            index,
            request.tiers,
            promote_to=request.promote_to,
            kv_bytes=request.kv_bytes,
            experts=range(len(index.expert_layers) * index.expert_count),
        )


def _open(name: str, options: StaticOptions, env: Env) -> StaticPolicy:  # noqa: ARG001  the signature is the contract
    return StaticPolicy()


@hookimpl
def optaned_placement_policies() -> list[Driver]:
    """Declare the policy `static`."""
    return [Driver("static", StaticOptions, _open, "the trunk, then experts layer by layer until the tiers are full")]
