"""`optanectl load` and `unload`: which model the daemon holds. Both need the right to use control routes."""

from __future__ import annotations

import click

from optaned.cli.ctl.options import daemon_of, terminal
from optaned.cli.ctl.status import wait_until_ready


@click.command("load")
@click.argument("name")
@click.option("--wait", is_flag=True, help="Return when the model is ready (exit 0) or has failed (exit 1).")
@click.pass_context
def load(context: click.Context, name: str, *, wait: bool) -> int:
    """Load the declared model NAME; the present one is unloaded first."""
    daemon = daemon_of(context)
    daemon.post("/load", {"model": name})
    if wait:
        wait_until_ready(daemon, terminal(), timeout_s=None)
    click.echo(f"{name} is ready" if wait else f"{name} is loading; follow it with: optanectl status --wait")
    return 0


@click.command("unload")
@click.pass_context
def unload(context: click.Context) -> int:
    """Unload the model. The daemon stays up and answers control requests."""
    daemon_of(context).post("/unload", {})
    click.echo("unloaded")
    return 0
