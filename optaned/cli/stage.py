"""`optaned stage`: a model's shards onto the mounts that it is served from. Works without a daemon, obeys its guard."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click

from optaned.cli.columns import columns
from optaned.cli.config_option import config_option
from optaned.cli.stage_progress import reporter
from optaned.config.open import find_config, open_config
from optaned.errors import BusyError, UsageError
from optaned.hooks.drivers import Env
from optaned.pipeline.probe import probe
from optaned.pipeline.staging.plan import Job, StagePlan, plan_staging
from optaned.pipeline.staging.run import Staging
from optaned.pipeline.staging.sources import find_sources
from optaned.pipeline.staging.targets import Target, distinct, folder_target, tier_target
from optaned.system.duty import DutyGate, obeyed_word_path
from optaned.units import format_bytes, parse_bytes

HEADER = ("file", "size", "to", "what", "path")


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="SOURCE...")
@click.option("--to", "targets", multiple=True, required=True, metavar="TIER|DIR", help="Where to; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only say which shard goes where.")
@click.option("--move", is_flag=True, help="Free each source once its copy has been verified.")
@click.option("--verify", is_flag=True, help="Read every copy back from the medium and compare digests.")
@click.option("--resplit", is_flag=True, help="Cut the model anew where a shard fits no mount, or shards are too few.")
@click.option("--size", type=_Size(), help="The whole model's size, for placing shards that are not there yet.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON.")
@config_option
def stage(
    sources: tuple[Path, ...],
    targets: tuple[str, ...],
    config_file: Path | None,
    size: int | None,
    *,
    dry_run: bool,
    move: bool,
    verify: bool,
    resplit: bool,
    as_json: bool,
) -> None:
    """Copy a model's shards to where it is served from.

    SOURCE is a GGUF file or a folder of them; shards may be given singly, in any order, and while others are still being
    fetched. Run it again to go on: what is there stays, what was begun is gone on with.
    """
    if as_json and not dry_run:
        raise UsageError("optaned stage: --json goes with --dry-run")
    places = _targets(targets, config_file)
    plan = plan_staging(find_sources(sources, total_bytes=size), places, resplit=resplit, move=move)
    if dry_run:
        click.echo(
            json.dumps(plan_object(plan), indent=2) if as_json else columns(HEADER, [_row(j) for j in plan.jobs])
        )
        return
    word = obeyed_word_path()
    click.echo(_guard_line(word), err=True)
    try:
        with reporter(is_terminal=sys.stderr.isatty()) as report:
            Staging(word, report, verify=verify, move=move).run(plan)
    except KeyboardInterrupt:
        click.echo("stopped; run it again to go on from here", err=True)
        raise
    if plan.waiting:
        raise BusyError(*(f"{job.name}: waits: {job.note}; stage it again when it is there" for job in plan.waiting))


def plan_object(plan: StagePlan) -> dict[str, Any]:
    """Return a plan as JSON knows it: sizes in bytes."""
    files = [
        {
            "name": job.name,
            "size_bytes": job.size_bytes,
            "to": job.target.name,
            "path": str(job.path),
            "doing": str(job.doing),
            "note": job.note,
        }
        for job in plan.jobs
    ]
    return {"resplit": bool(plan.resplit), "files": files}


def _row(job: Job) -> tuple[str, ...]:
    what = f"{job.doing}: {job.note}" if job.note else str(job.doing)
    return (job.name, format_bytes(job.size_bytes), job.target.name, what, str(job.path))


def _targets(names: tuple[str, ...], config_file: Path | None) -> tuple[Target, ...]:
    """Return targets; a name that is no path and no folder here is a tier of the configuration."""
    folders = {name: folder_target(Path(name)) for name in names if "/" in name or Path(name).is_dir()}
    tiers = [name for name in names if name not in folders]
    found = folders | (_tier_targets(tiers, config_file) if tiers else {})
    return distinct([found[name] for name in names])


def _tier_targets(names: list[str], config_file: Path | None) -> dict[str, Target]:
    resolved = open_config(find_config(config_file), look_for_files=False).resolved
    for name in names:
        if name not in resolved.tiers:
            declared = ", ".join(resolved.tiers) or "none"
            raise UsageError(f"--to {name}: no folder, and no tier of {resolved.file}; declared: {declared}")
    wanted = dataclasses.replace(resolved, tiers={name: resolved.tiers[name] for name in names})
    return {tier.name: tier_target(tier) for tier in probe(wanted, Env())}


def _guard_line(word: Path) -> str:
    gate = DutyGate(word)
    gate.close()
    if gate.is_guarded:
        return "a guard is running: copying keeps to its duty"
    return "no guard is running: nothing watches the memory's temperature while copying"
