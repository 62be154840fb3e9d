"""`optanectl tokenize`: how the model's vocabulary cuts a text."""

from __future__ import annotations

import sys

import click

from optaned.cli.ctl.options import daemon_of, json_option
from optaned.cli.ctl.terminal import print_json


@click.command("tokenize")
@click.argument("text")
@json_option
@click.pass_context
def command(context: click.Context, text: str, *, as_json: bool) -> int:
    """Show the token ids of TEXT, separated by spaces, and how many they are.

    \b
    JSON: {tokens: [id, …]} and what the daemon adds.
    """
    reply = daemon_of(context).post("/tokenize", {"content": text})
    if as_json:
        print_json(sys.stdout, reply)
        return 0
    click.echo(" ".join(map(str, reply["tokens"])))
    click.echo(f"{len(reply['tokens'])} tokens", err=True)
    return 0
