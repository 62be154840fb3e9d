"""`optaned check`: everything that is wrong with a configuration at once, or all its effective values."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import click

from optaned.cli.config_option import config_option
from optaned.config.explain import key_of
from optaned.config.open import find_config, open_config
from optaned.config.render import json_schema
from optaned.config.resolve import ResolvedConfig
from optaned.config.settings import Setting
from optaned.errors import UsageError


@click.command
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@config_option
@click.option("--show", is_flag=True, help="Print every effective value and where it comes from; secrets are masked.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of the configuration, for editors.")
@click.option("--no-files", is_flag=True, help="Do not look for model files: check on another machine.")
def check(file: Path | None, config_file: Path | None, *, show: bool, schema: bool, no_files: bool) -> None:
    """Validate a configuration and say everything that is wrong with it. Exit code 78 when something is."""
    if schema:
        click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    if file is not None and config_file is not None:
        raise UsageError("optaned check: name the file once, as an argument or with --config")
    resolved = open_config(find_config(file or config_file), look_for_files=not no_files).resolved
    for line in resolved.warnings:
        click.echo(f"warning: {line}", err=True)
    click.echo("\n".join(shown(resolved.settings)) if show else f"{resolved.file}: ok, {_summary(resolved)}")


def shown(settings: tuple[Setting, ...]) -> list[str]:
    """Return settings as TOML lines, each with its origin as a comment."""
    text = []
    for table, entries in groupby(settings, lambda s: s.path[:-1]):
        if table:
            text += ["", f"[{key_of(table)}]"]
        text += [_line(setting) for setting in entries]
    return text


def _line(setting: Setting) -> str:
    key = key_of(setting.path[-1:])
    written = f"# {key} is not set" if setting.text is None else f"{key} = {setting.text}"
    return f"{written:<40}  # {setting.origin}"


def _summary(resolved: ResolvedConfig) -> str:
    tiers = ", ".join(f"{t.name} ({t.driver.name})" for t in resolved.tiers.values()) or "none"
    sensors = ", ".join(f"{s.name} ({s.driver.name})" for s in resolved.sensors.values()) or "none"
    return f"model {resolved.default_model} on {resolved.backend.name}; tiers: {tiers}; sensors: {sensors}"
