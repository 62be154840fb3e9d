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
from optaned.hooks.drivers import Env
from optaned.pipeline.run import Prepared, prepare
from optaned.units import format_bytes

HEADER = ("tier", "kind", "capacity", "free", "trunk", "experts", "kv cache", "left")


@click.command
@click.argument("model", required=False)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(model: str | None, config_file: Path | None, *, as_json: bool) -> None:
    """Show where every byte of MODEL (else the default model) would lie."""
    ready = prepare(open_config(find_config(config_file)).resolved, Env(), model=model)
    if as_json:
        click.echo(json.dumps(plan_object(ready), indent=2))
    elif ready.index is None or ready.plan is None:
        click.echo(f"{ready.model}: no files; its backend answers without weights, so there is nothing to place")
    else:
        click.echo(describe(ready.index, ready.model))
        click.echo(columns(HEADER, [_row(tier, ready.plan) for tier in ready.tiers]))
        for note in ready.plan.notes:
            click.echo(f"note: {note}")


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


def plan_object(ready: Prepared) -> dict[str, Any]:
    """Return a plan as JSON knows it: sizes in bytes; `index` and `plan` None for a model without files."""
    index, plan = ready.index, ready.plan
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
        "tiers": [tier_object(tier) | _placed(tier, plan) for tier in ready.tiers],
        "context": ready.request.context,
        "slots": ready.request.slots,
        "threads": ready.request.threads,
    }


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


def _row(tier: TierInfo, plan: PlacementPlan) -> tuple[str, ...]:
    placed = _placed(tier, plan)
    sizes = (tier.capacity_bytes, tier.free_bytes, placed["trunk_bytes"], placed["expert_bytes"], placed["kv_bytes"])
    left = tier.free_bytes - placed["claimed_bytes"]
    return (tier.name, str(tier.kind), *(format_bytes(size) if size else "-" for size in sizes), format_bytes(left))
