"""`optanectl models`: what can be loaded, and what is."""

from __future__ import annotations

import sys

import click

from optaned.cli.ctl.options import daemon_of, json_option
from optaned.cli.ctl.terminal import print_json, print_table


@click.command("models")
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int:
    """List the declared models; one of them is loaded at a time.

    \b
    JSON: the list of /v1/models: object, data [{id, object, created, owned_by, and what the daemon adds}].
    """
    listed = daemon_of(context).get("/v1/models")
    if as_json:
        print_json(sys.stdout, listed)
        return 0
    heading = [("NAME", "STATE", "CONTEXT")]
    print_table(sys.stdout, heading + [_row(model) for model in listed["data"]])
    return 0


def _row(model: dict[str, object]) -> tuple[str, str, str]:
    return str(model["id"]), str(model.get("state") or "-"), str(model.get("context") or "-")
