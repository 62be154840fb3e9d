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
    """Show the tokens of TEXT, one a line: id and text. Control tokens that are spelled in it count as such.

    \b
    JSON: tokens [{id, piece}]; a piece that is no whole text is a list of bytes.
    """
    reply = daemon_of(context).post("/tokenize", {"content": text, "with_pieces": True})
    if as_json:
        print_json(sys.stdout, reply)
        return 0
    for token in reply["tokens"]:
        piece = token["piece"]
        shown = repr(piece if isinstance(piece, str) else bytes(piece))
        click.echo(f"{token['id']:>7}  {shown}")
    return 0
