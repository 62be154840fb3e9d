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
from optaned.domain.tiers import TierInfo
from optaned.hooks.drivers import Env
from optaned.pipeline.probe import probe as probe_tiers
from optaned.units import format_bytes

HEADER = ("tier", "driver", "kind", "capacity", "free", "read", "node", "where")


@click.command
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def probe(config_file: Path | None, *, as_json: bool) -> None:
    """Show capacity, free bytes and place of every declared tier."""
    resolved = open_config(find_config(config_file)).resolved
    tiers = probe_tiers(resolved, Env())
    if as_json:
        click.echo(json.dumps({"tiers": [tier_object(tier) for tier in tiers]}, indent=2))
    elif tiers:
        click.echo(columns(HEADER, tier_rows(tiers)))
    else:
        click.echo(f"{resolved.file} declares no tiers")


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
