"""The pipeline in five lines: probe, index, plan, load. `optaned probe` and `optaned plan` run a prefix of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optaned.config.resolve import ResolvedConfig, ResolvedModel
from optaned.domain.cache import cache_bytes
from optaned.domain.model import ModelIndex
from optaned.domain.tiers import PlacementPlan, TierInfo
from optaned.errors import UsageError
from optaned.hooks.drivers import Env, LoadRequest, PlanRequest
from optaned.pipeline.homes import add_homes
from optaned.pipeline.index import index_model
from optaned.pipeline.load import load_request
from optaned.pipeline.plan import plan_placement
from optaned.pipeline.probe import probe


@dataclass(frozen=True)
class Prepared:
    """All that is known of a model before it is loaded. A model without files (a scripted backend's) has no index."""

    model: str
    tiers: tuple[TierInfo, ...]
    index: ModelIndex | None
    plan: PlacementPlan | None
    request: LoadRequest


def _silent(stage: str) -> None:
    """Report a stage to nobody."""


def prepare(
    resolved: ResolvedConfig, env: Env, *, model: str | None = None, report: Callable[[str], None] = _silent
) -> Prepared:
    """Run all stages up to the engine's for a declared model, or the default one; `report` hears each stage's name.

    Raises OptanedError: a line that names stage, plugin or file, cause and next step.
    """
    wanted = _declared(resolved, model or resolved.default_model)
    report("probe")
    tiers = probe(resolved, env)
    if not wanted.files:
        return Prepared(wanted.name, tiers, None, None, load_request(wanted, resolved.config.engine, None))
    report("index")
    index = index_model(wanted)
    report("plan")
    request = _plan_request(resolved, wanted, index, add_homes(tiers, index))
    plan = plan_placement(resolved.policy, request, env)
    return Prepared(wanted.name, request.tiers, index, plan, load_request(wanted, resolved.config.engine, index))


def _declared(resolved: ResolvedConfig, name: str) -> ResolvedModel:
    if name not in resolved.models:
        known = ", ".join(sorted(resolved.models)) or "none"
        raise UsageError(f"there is no model {name!r} in {resolved.file}; declared: {known}")
    return resolved.models[name]


def _plan_request(
    resolved: ResolvedConfig, model: ResolvedModel, index: ModelIndex, tiers: tuple[TierInfo, ...]
) -> PlanRequest:
    kv_bytes = cache_bytes(index, context=model.context, slots=resolved.config.engine.slots, kv_cache=model.kv_cache)
    return PlanRequest(index, tiers, resolved.config.placement.promote_to, kv_bytes)
