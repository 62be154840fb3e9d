"""Command-line options that several verbs share, and the daemon that they lead to. Knows no verb."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from optaned.cli.ctl.address import find_address
from optaned.cli.ctl.daemon import Daemon
from optaned.cli.ctl.terminal import Terminal

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; its fields are described above.")


def sampling_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add what shapes an answer; what is not given is the daemon's default."""
    for option in reversed(
        (
            click.option("--model", metavar="NAME", help="Refuse unless this model is loaded."),
            click.option("--system", metavar="TEXT", help="Instructions that come before the conversation."),
            click.option("--max-tokens", type=click.IntRange(min=1), help="Stop after this many tokens."),
            click.option("--temperature", type=click.FloatRange(min=0), help="0 always takes the likeliest token."),
            click.option(
                "--seed", type=int, help="Random choices are derived from it; without one, each answer differs."
            ),
        )
    ):
        verb = option(verb)
    return verb


def daemon_of(context: click.Context) -> Daemon:
    """Return the daemon that `--host` or the environment names. Raises UsageError."""
    return Daemon(find_address(context.find_root().obj, os.environ))


def terminal() -> Terminal:
    """Return the terminal, or what the shell put in its place. What it cannot encode is shown as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    return Terminal(sys.stdout, sys.stderr)
