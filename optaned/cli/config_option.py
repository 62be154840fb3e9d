"""The option `--config FILE` that most verbs share, and the configuration behind it."""

from __future__ import annotations

from pathlib import Path

import click

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Configuration [default: $OPTANED_CONFIG, ./optaned.toml, ~/.config/optaned/, /etc/optaned/].",
)
"""Decorator; the command gets `config_file: Path | None`, to be given to `optaned.config.open.find_config`."""
