"""The pipeline in five lines: probe, index, plan, load. `optaned probe` and `optaned plan` run a prefix of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from optaned.config.resolve import ResolvedConfig, ResolvedModel
from optaned.domain.cache import cache_bytes
from optaned.domain.model import ModelIndex
from optaned.domain.tiers import PlacementPlan, TierInfo
from optaned.errors import UsageError
from optaned.hooks.drivers import Env, LoadRequest, PlanRequest
from optaned.pipeline.heat import saved_heat
from optaned.pipeline.homes import add_homes
from optaned.pipeline.index import index_model
from optaned.pipeline.load import load_request
from optaned.pipeline.plan import plan_placement
from optaned.pipeline.probe import probe
from optaned.pipeline.recorded import as_declared
from optaned.placement.arrays import Floats
from optaned.placement.heat import Heat
from optaned.placement.skew import believable_frequency, measure_skew
from optaned.residency.expert_stats import stats_of
from optaned.system.paths import state_dir


@dataclass(frozen=True)
class Prepared:
    """All that is known of a model before it is loaded. A model without files (a scripted backend's) has no index.

    `heat` is what was saved of the experts' use, at `heat_path`; both are None for a model without experts.
    """

    model: str
    tiers: tuple[TierInfo, ...]
    index: ModelIndex | None
    plan: PlacementPlan | None
    request: LoadRequest
    heat: Heat | None = None
    heat_path: Path | None = None

    @property
    def frequency(self) -> Floats | None:
        """Return uses a token by flat expert number, without what was luck; None while nothing is known."""
        if self.index is None or self.heat is None or not self.heat.tokens:
            return None
        layers = len(self.index.expert_layers)
        skew = measure_skew(self.heat, layers=layers, used=self.index.expert_used_count)
        return believable_frequency(self.heat, skew, layers=layers)


@dataclass(frozen=True)
class Elsewhere:
    """Another machine: its recorded tiers, and files whose headers are read here instead of the declared ones."""

    tiers: tuple[TierInfo, ...]
    headers: tuple[Path, ...] = ()


def _silent(stage: str) -> None:
    """Report a stage to nobody."""


def prepare(
    resolved: ResolvedConfig,
    env: Env,
    *,
    model: str | None = None,
    report: Callable[[str], None] = _silent,
    elsewhere: Elsewhere | None = None,
) -> Prepared:
    """Run all stages up to the engine's for a declared model, or the default one; `report` hears each stage's name.

    `elsewhere` plans for another machine: its tiers as they were recorded, and headers that lie here.

    Raises OptanedError: a line that names stage, plugin or file, cause and next step.
    """
    wanted = _declared(resolved, model or resolved.default_model)
    report("probe")
    tiers = probe(resolved, env) if elsewhere is None else elsewhere.tiers
    if not wanted.files:
        return Prepared(wanted.name, tiers, None, None, load_request(wanted, resolved.config.engine, None))
    report("index")
    index = index_model(wanted) if elsewhere is None else _index_elsewhere(wanted, elsewhere)
    report("plan")
    path, heat = saved_heat(state_dir(), index, resolved.config.placement.profile)
    request = _plan_request(resolved, wanted, index, add_homes(tiers, index), heat)
    plan = plan_placement(resolved.policy, request, env)
    loading = load_request(wanted, resolved.config.engine, index)
    return Prepared(wanted.name, request.tiers, index, plan, loading, heat, path)


def _index_elsewhere(model: ResolvedModel, elsewhere: Elsewhere) -> ModelIndex:
    """Index headers that lie here, as if the shards lay where the configuration names them."""
    if not elsewhere.headers:
        return index_model(model)
    return as_declared(index_model(replace(model, files=elsewhere.headers)), model.files)


def _declared(resolved: ResolvedConfig, name: str) -> ResolvedModel:
    if name not in resolved.models:
        known = ", ".join(sorted(resolved.models)) or "none"
        raise UsageError(f"there is no model {name!r} in {resolved.file}; declared: {known}")
    return resolved.models[name]


def _plan_request(
    resolved: ResolvedConfig, model: ResolvedModel, index: ModelIndex, tiers: tuple[TierInfo, ...], heat: Heat | None
) -> PlanRequest:
    kv_bytes = cache_bytes(index, context=model.context, slots=resolved.config.engine.slots, kv_cache=model.kv_cache)
    promote_to = resolved.config.placement.promote_to
    return PlanRequest(index, tiers, promote_to, kv_bytes, None if heat is None else stats_of(heat))
