"""`optaned probe`: what each declared tier has. Works without a daemon, changes nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from optaned.cli.columns import columns
from optaned.cli.config_option import config_option
from optaned.config.open import find_config, open_config
from optaned.config.resolve import ResolvedConfig
from optaned.domain.tiers import TierInfo
from optaned.hooks.drivers import Env
from optaned.pipeline.bandwidth import measure as measure_tier
from optaned.pipeline.bandwidth import remember
from optaned.pipeline.probe import probe as probe_tiers
from optaned.pipeline.threads import affinity, threads_for
from optaned.residency.measure import DEFAULT_SECONDS, Measuring
from optaned.system.duty import DutyGate, obeyed_word_path
from optaned.system.paths import state_dir
from optaned.units import format_bytes

HEADER = ("tier", "driver", "kind", "capacity", "free", "read", "node", "where")


@click.command
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which `optaned plan --probe` reads elsewhere.")
@click.option("--measure", is_flag=True, help="Read each tier for some seconds, and remember how fast that was.")
@click.option("--seconds", type=click.FloatRange(min=0.05, max=60), default=DEFAULT_SECONDS, show_default=True)
@click.option("--threads", type=click.IntRange(min=1, max=256), help="With --measure [default: one a core].")
def probe(config_file: Path | None, seconds: float, threads: int | None, *, as_json: bool, measure: bool) -> None:
    """Show capacity, free bytes and place of every declared tier."""
    # A first look comes before the model is there; measuring reads its files.
    resolved = open_config(find_config(config_file), look_for_files=measure).resolved
    tiers = probe_tiers(resolved, Env())
    if measure:
        tiers = _measure(resolved, tiers, threads or threads_for("auto", affinity()), seconds)
    if as_json:
        click.echo(json.dumps({"tiers": [tier_object(tier) for tier in tiers]}, indent=2))
    elif tiers:
        click.echo(columns(HEADER, tier_rows(tiers)))
        for tier in tiers:
            for note in tier.notes:
                click.echo(f"{tier.name}: {note}")
    else:
        click.echo(f"{resolved.file} declares no tiers")


def _measure(
    resolved: ResolvedConfig, tiers: tuple[TierInfo, ...], threads: int, seconds: float
) -> tuple[TierInfo, ...]:
    """Measure one tier after another, under the duty of a guard that lives; what cannot be measured is said."""
    word_path = obeyed_word_path()
    how = Measuring(threads, seconds, lambda: DutyGate(word_path))
    files = [file for model in resolved.models.values() for file in model.files]
    found: list[TierInfo] = []
    measured: list[TierInfo] = []
    for tier in tiers:
        outcome = measure_tier(tier, files, how)
        if isinstance(outcome, str):
            click.echo(f"{tier.name}: {outcome}", err=True)
            found.append(tier)
        else:
            found.append(outcome)
            measured.append(outcome)
    if measured:
        click.echo(f"remembered in {remember(measured, state_dir())}", err=True)
    return tuple(found)


def tier_object(tier: TierInfo) -> dict[str, Any]:
    """Return a tier as JSON knows it: sizes in bytes, speeds in GB/s, None for what is unknown."""
    return {**dataclasses.asdict(tier), "kind": str(tier.kind), "mount": str(tier.mount) if tier.mount else None}


def tier_rows(tiers: Sequence[TierInfo]) -> list[tuple[str, ...]]:
    """Return one row a tier, under HEADER."""
    return [
        (
            tier.name,
            tier.driver,
            str(tier.kind),
            format_bytes(tier.capacity_bytes),
            format_bytes(tier.free_bytes),
            f"{tier.read_gbps:g} GB/s" if tier.read_gbps else "-",
            "-" if tier.numa_node is None else str(tier.numa_node),
            str(tier.mount or "-"),
        )
        for tier in tiers
    ]
