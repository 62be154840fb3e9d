"""`optanectl tiers`: what of the model lies on each tier and how much of what is read comes from there; moves by hand."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import click

from optaned.cli.ctl.options import daemon_of, json_option
from optaned.cli.ctl.terminal import print_json, print_table
from optaned.errors import UsageError
from optaned.units import format_bytes

HEADER = ("TIER", "DRIVER", "BUDGET", "TRUNK", "EXPERTS", "BYTES", "PROMOTED", "DEMOTED", "HITS")
_PLACE = re.compile(r"(\d{1,6})(?::(\d{1,6}))?")


@click.group("tiers", invoke_without_command=True)
@json_option
@click.pass_context
def group(context: click.Context, *, as_json: bool) -> int | None:
    """Show what of the model lies on each tier, or move experts by hand.

    \b
    JSON: model, state, policy, kv_tier, notes, tiers [{name, driver, kind, numa_node, mount, read_gbps, capacity_bytes,
    planned_bytes, kv_bytes, budget_bytes, trunk_bytes, expert_bytes, experts, promoted_bytes_total,
    demoted_bytes_total, hit_bytes_total, hit_share}], routed_bytes_total, skew (0 even to 1), moving, move_gbps,
    smaps_bytes. Live figures are null until the engine has told them.
    """
    if context.invoked_subcommand is not None:
        return None
    view = daemon_of(context).get("/tiers")
    if as_json:
        print_json(sys.stdout, view)
        return 0
    print_table(sys.stdout, [HEADER, *map(_row, view["tiers"])])
    for line in remarks(view):
        click.echo(line)
    return 0


def _verb(do: str, help_text: str) -> click.Command:
    @click.command(do, help=help_text)
    @click.argument("place", metavar="LAYER[:EXPERT]")
    @click.pass_context
    def command(context: click.Context, place: str) -> int:
        layer, expert = parse_place(place)
        body = {"do": do, "layer": layer} | ({} if expert is None else {"expert": expert})
        click.echo(daemon_of(context).post("/tiers/move", body)["detail"])
        return 0

    return command


for _do, _text in (
    ("promote", "Bring one expert, or a whole layer's, into the fastest tier; the coldest make room."),
    ("demote", "Give back one expert, or a whole layer's: they are read from home, and kept out."),
    ("pin", "Promote, and keep there until unpinned or demoted."),
    ("unpin", "Leave to the policy what was pinned, or kept out by demoting it."),
):
    group.add_command(_verb(_do, _text))


def parse_place(text: str) -> tuple[int, int | None]:
    """Return (layer, expert) of "3:17", or (layer, None) of "3". Raises UsageError."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no place; write LAYER or LAYER:EXPERT, as in 3 or 3:17")
    return int(match[1]), None if match[2] is None else int(match[2])


def remarks(view: Mapping[str, Any]) -> list[str]:
    """Return what stands below the table."""
    if not view["tiers"]:
        return [f"{view['model'] or 'no model'}: nothing is placed ({view['state']})"]
    lines = [f"policy {view['policy']}: {view['moving'] or view['state']}"]
    if view["smaps_bytes"] is not None:
        lines.append(
            f"the kernel counts {format_bytes(view['smaps_bytes'])} of copies, moving {view['move_gbps']:g} GB/s"
        )
    return lines


def _row(tier: Mapping[str, Any]) -> tuple[str, ...]:
    share = tier["hit_share"]
    return (
        tier["name"],
        tier["driver"],
        _size(tier["budget_bytes"]),
        _size(tier["trunk_bytes"]),
        str(tier["experts"] or "-"),
        _size(tier["expert_bytes"]),
        _size(tier["promoted_bytes_total"]),
        _size(tier["demoted_bytes_total"]),
        "-" if share is None else f"{share:.1%}",
    )


def _size(size_bytes: int | None) -> str:
    return format_bytes(size_bytes) if size_bytes else "-"
