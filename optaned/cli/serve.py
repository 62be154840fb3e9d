"""`optaned serve`: the daemon in the foreground, as systemd and people run it. Knows how to log, not how to serve."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from optaned.cli.config_option import config_option
from optaned.config.open import find_config, open_config
from optaned.server.run import serve as run_server

log = logging.getLogger("optaned.server")


@click.command
@config_option
@click.option("--verbose", is_flag=True, help="Log each request and each stage.")
def serve(config_file: Path | None, *, verbose: bool) -> None:
    """Run the daemon until SIGTERM or Ctrl-C."""
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    # It tells of its own start and end, which are ours to tell.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    opened = open_config(find_config(config_file))
    for line in opened.resolved.warnings:
        log.warning(line)
    run_server(opened.resolved, opened.host)
