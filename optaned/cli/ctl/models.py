"""`optanectl models`: what can be loaded, and what is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from optaned.cli.ctl.options import daemon_of, json_option
from optaned.cli.ctl.terminal import print_json, print_table


@click.command("models")
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int:
    """List the declared models; one of them is loaded at a time.

    \b
    JSON, as /v1/models has it: object, data [{id, object, created, owned_by, state, and for the loaded one
    meta {n_ctx, n_embd, n_params, size}}].
    """
    listed = daemon_of(context).get("/v1/models")
    if as_json:
        print_json(sys.stdout, listed)
        return 0
    print_table(sys.stdout, [("NAME", "STATE", "CONTEXT"), *map(_row, listed["data"])])
    return 0


def _row(model: Mapping[str, Any]) -> tuple[str, ...]:
    meta = model.get("meta") or {}
    return str(model["id"]), str(model.get("state") or "-"), str(meta.get("n_ctx") or "-")
