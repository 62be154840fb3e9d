"""`optaned plan`: where every byte of a model would lie. Loads nothing, needs no daemon, changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from optaned.cli.columns import columns
from optaned.cli.config_option import config_option
from optaned.cli.probe import tier_object
from optaned.config.open import find_config, open_config
from optaned.domain.model import Group, ModelIndex
from optaned.domain.tiers import PlacementPlan, TierInfo
from optaned.errors import UsageError
from optaned.hooks.drivers import Env
from optaned.pipeline.recorded import read_probe
from optaned.pipeline.run import Elsewhere, Prepared, prepare
from optaned.placement.forecast import Forecast, forecast
from optaned.units import format_bytes

HEADER = ("tier", "kind", "capacity", "free", "trunk", "experts", "kv cache", "left", "read a token")

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command
@click.argument("model", required=False)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--probe", "probe_file", type=_FILE, help="Plan for the machine where `optaned probe --json` wrote this.")
@click.option(
    "--header", "headers", type=_FILE, multiple=True, help="With --probe: GGUF files here with the model's headers."
)
def plan(
    model: str | None,
    config_file: Path | None,
    probe_file: Path | None,
    headers: tuple[Path, ...],
    *,
    as_json: bool,
) -> None:
    """Show where every byte of MODEL (else the default model) would lie."""
    if headers and probe_file is None:
        raise UsageError("optaned plan: --header needs --probe; without it the declared files are read")
    resolved = open_config(find_config(config_file), look_for_files=not headers).resolved
    elsewhere = None if probe_file is None else Elsewhere(read_probe(probe_file), headers)
    ready = prepare(resolved, Env(), model=model, elsewhere=elsewhere)
    if as_json:
        click.echo(json.dumps(plan_object(ready), indent=2))
    elif ready.index is None or ready.plan is None:
        click.echo(f"{ready.model}: no files; its backend answers without weights, so there is nothing to place")
    else:
        click.echo(describe(ready.index, ready.model))
        told = reads_of(ready.index, ready.plan, ready)
        click.echo(columns(HEADER, [_row(tier, ready.plan, told) for tier in ready.tiers]))
        for line in (
            *speed_lines(ready.index, ready.plan, ready, told),
            *(f"note: {note}" for note in ready.plan.notes),
        ):
            click.echo(line)


def describe(index: ModelIndex, model: str) -> str:
    """Return a model in one line: what it is, how large, and how much of it each token reads."""
    shards = f"{len(index.shards)} shard{'s' if len(index.shards) > 1 else ''}"
    parts = [f"{model}: {index.architecture}", index.quantization, f"{format_bytes(index.size_bytes)} in {shards}"]
    if index.expert_count:
        experts = (
            f"{format_bytes(index.expert_bytes)} experts ({index.expert_used_count} of {index.expert_count} a token)"
        )
        parts.append(f"{format_bytes(index.trunk_bytes)} trunk + {experts}")
    return ", ".join(parts)


def reads_of(index: ModelIndex, plan: PlacementPlan, ready: Prepared) -> Forecast:
    """Return what a token reads from each tier; experts by saved heat, without any as if all were alike."""
    return forecast(index, plan, ready.tiers, ready.frequency)


def speed_lines(index: ModelIndex, plan: PlacementPlan, ready: Prepared, told: Forecast) -> list[str]:
    """Return both readings of the forecast: memory binds, or computing does. Which one is true, only a run can tell."""
    shares = f", {told.hit_share:.0%} of routed bytes from promoted experts" if index.expert_layers else ""
    lines = [f"a token reads {format_bytes(told.size_bytes)}{shares}"]
    planned, at_home = told.tokens_per_second(ready.tiers), _at_home(index, plan, ready)
    if planned is None or at_home is None:
        unknown = ", ".join(sorted(r.tier for r in told.reads if r.size_bytes and _gbps(ready, r.tier) is None))
        where = f" of {unknown}" if unknown else ""
        return [*lines, f"if memory binds: unknown without the bandwidth{where}; measure it: optaned probe --measure"]
    home = "" if planned == at_home else f"; {at_home:.3g} with everything at home"
    lines.append(f"if memory binds: {planned:.3g} tokens/s at most{home}")
    lines.append("if computing binds: as fast as from home, and promotion gains nothing; more threads or a GPU would")
    return lines


def _at_home(index: ModelIndex, plan: PlacementPlan, ready: Prepared) -> float | None:
    stays = PlacementPlan((), plan.kv_tier, plan.kv_bytes)
    return reads_of(index, stays, ready).tokens_per_second(ready.tiers)


def _gbps(ready: Prepared, name: str) -> float | None:
    return next((tier.read_gbps for tier in ready.tiers if tier.name == name), None)


def plan_object(ready: Prepared) -> dict[str, Any]:
    """Return a plan as JSON knows it: sizes in bytes; `index`, `plan`, `forecast` None for a model without files."""
    index, plan = ready.index, ready.plan
    told = None if index is None or plan is None else reads_of(index, plan, ready)
    return {
        "model": ready.model,
        "index": index
        and {
            "architecture": index.architecture,
            "quantization": index.quantization,
            "digest": index.digest,
            "shards": [str(shard.path) for shard in index.shards],
            "size_bytes": index.size_bytes,
            "trunk_bytes": index.trunk_bytes,
            "expert_bytes": index.expert_bytes,
            "experts": index.expert_count,
            "experts_used": index.expert_used_count,
        },
        "plan": plan and {"kv_tier": plan.kv_tier, "kv_bytes": plan.kv_bytes, "notes": list(plan.notes)},
        "forecast": None if index is None or plan is None or told is None else _forecast(index, plan, ready, told),
        "tiers": [tier_object(tier) | _placed(tier, plan) | _read(tier, told) for tier in ready.tiers],
        "context": ready.request.context,
        "slots": ready.request.slots,
        "threads": ready.request.threads,
    }


def _forecast(index: ModelIndex, plan: PlacementPlan, ready: Prepared, told: Forecast) -> dict[str, Any]:
    """Return both readings; `compute_bound_gain` is 1 whatever the plan."""
    return {
        "bytes_per_token": round(told.size_bytes),
        "hit_share": round(told.hit_share, 6),
        "memory_bound_tokens_per_s": told.tokens_per_second(ready.tiers),
        "memory_bound_at_home_tokens_per_s": _at_home(index, plan, ready),
        "compute_bound_gain": 1,
    }


def _read(tier: TierInfo, told: Forecast | None) -> dict[str, int]:
    """Return what a token reads from a tier, in bytes."""
    read = None if told is None else next((each for each in told.reads if each.tier == tier.name), None)
    return (
        {}
        if read is None
        else {"trunk_bytes_per_token": round(read.trunk_bytes), "expert_bytes_per_token": round(read.expert_bytes)}
    )


def _placed(tier: TierInfo, plan: PlacementPlan | None) -> dict[str, int]:
    """Return what a plan puts on a tier, in bytes; `claimed_bytes` is what it takes of what is free."""
    if plan is None:
        return {}
    sizes = {
        f"{group}_bytes": sum(a.size_bytes for a in plan.allotments if (a.tier, a.group) == (tier.name, group))
        for group in Group
    }
    kv_bytes = plan.kv_bytes if plan.kv_tier == tier.name else 0
    return sizes | {"kv_bytes": kv_bytes, "claimed_bytes": plan.claimed_bytes(tier.name)}


def _row(tier: TierInfo, plan: PlacementPlan, told: Forecast) -> tuple[str, ...]:
    placed, read = _placed(tier, plan), sum(_read(tier, told).values())
    sizes = (tier.capacity_bytes, tier.free_bytes, placed["trunk_bytes"], placed["expert_bytes"], placed["kv_bytes"])
    left = format_bytes(tier.free_bytes - placed["claimed_bytes"])
    shown = [format_bytes(size) if size else "-" for size in sizes]
    return (tier.name, str(tier.kind), *shown, left, format_bytes(read) if read else "-")
