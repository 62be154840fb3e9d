"""Stage 3: let the configured policy place the model, and believe the plan only when the core has checked it."""

from __future__ import annotations

from optaned.config.lookup import ResolvedDriver
from optaned.domain.tiers import PlacementPlan
from optaned.errors import PluginError
from optaned.hooks.drivers import Env, PlanRequest
from optaned.pipeline.stage import stage
from optaned.placement.check import faults_of


def plan_placement(policy: ResolvedDriver, request: PlanRequest, env: Env) -> PlacementPlan:
    """Return the policy's plan. Raises OptanedError where it finds no place, PluginError where it breaks a rule."""
    with stage("plan", f"placement.policy {policy.driver.name}"):
        plan = policy.open(env).plan(request)
        if not isinstance(plan, PlacementPlan):
            raise PluginError(f"it returned {plan!r} instead of a plan; tell its author")
        if faults := faults_of(plan, request.index, request.tiers, request.kv_bytes):
            raise PluginError(*(f"{fault}; choose another policy and tell its author" for fault in faults))
        return plan
