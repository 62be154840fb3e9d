"""`optaned plugins`: what is installed, what it offers and what is wrong with it. Works whatever is broken."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from optaned.cli.config_option import config_option
from optaned.config.load import read_draft
from optaned.config.open import discover_plugins, find_config, plugin_folder
from optaned.config.schema import Config
from optaned.errors import ConfigError, MissingFileError
from optaned.hooks.host import PluginHost
from optaned.hooks.records import PluginRecord, Status
from optaned.hooks.spec import GUARD_GROUP


@click.command
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plugins(config_file: Path | None, *, as_json: bool) -> None:
    """List the plugins, what they offer, and what is wrong with them. A broken one that nothing uses is no error."""
    hosts = _hosts(config_file)
    if as_json:
        click.echo(json.dumps([{"group": h.group, **asdict(r)} for h in hosts for r in h.records], indent=2))
        return
    _print_table(hosts)
    for host in hosts:
        for line in host.collisions():
            click.echo(f"warning: {line}", err=True)


def _hosts(config_file: Path | None) -> tuple[PluginHost, PluginHost]:
    """Load all plugins of both groups. Only a configuration that was asked for by name must be there and readable."""
    config, file = Config(), Path("optaned.toml")
    try:
        file = find_config(config_file)
        config = read_draft(file).config
    except (MissingFileError, ConfigError) as error:
        if config_file is not None:
            raise
        if not isinstance(error, MissingFileError):
            click.echo(f"warning: {error}", err=True)
    folder = plugin_folder(config, file=file)
    guard = PluginHost.discover(GUARD_GROUP, disabled=config.plugins.disable, path=folder)
    return discover_plugins(config, file=file), guard


def _print_table(hosts: tuple[PluginHost, ...]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("plugin", "status", "distribution", "group", "offers"):
        table.add_column(heading, overflow="fold")
    for host in hosts:
        for record in host.records:
            table.add_row(record.name, _status(record), record.distribution, host.group, _offers(record))
    width = None if sys.stdout.isatty() else 200
    Console(highlight=False, markup=False, emoji=False, width=width).print(table)


def _status(record: PluginRecord) -> str:
    return f"{record.status}: {record.reason}" if record.reason else str(record.status)


def _offers(record: PluginRecord) -> str:
    """Return the drivers, and the hooks that declare none."""
    acting = [h for h in record.hooks if h in ("optaned_resolve_model", "optaned_governor_vote", "optaned_event")]
    return ", ".join((*record.drivers, *acting)) or ("nothing" if record.status is Status.LOADED else "")
