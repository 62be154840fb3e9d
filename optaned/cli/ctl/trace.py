"""`optanectl trace record FILE`: which experts the router chooses, a line a token. No text, no tokens."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import click

from optaned.cli.ctl.daemon import Daemon, error_of
from optaned.cli.ctl.options import daemon_of, terminal
from optaned.errors import AccessError


@click.group("trace")
def group() -> None:
    """Record which experts the router chooses, to try placement policies on."""


@group.command("record")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--tokens", type=click.IntRange(min=1), help="Stop after this many tokens; else at Ctrl-C.")
@click.pass_context
def record(context: click.Context, file: Path, *, tokens: int | None) -> int:
    """Write the choices of all answers from now on to FILE, until Ctrl-C or the engine ends.

    \b
    FILE: a JSON object a line. The first is {model, digest, layers, experts, experts_used}, then one a token:
    {choices: [[layer, [experts]], …]}. A line {lost: n} says that n choices came faster than they could be written.
    """
    screen = terminal()
    try:
        out = file.open("wb")
    except OSError as error:
        raise AccessError(f"{file}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    count = _Count()
    screen.say("recording; end it with Ctrl-C" if tokens is None else f"recording {tokens} tokens")
    with out:
        try:
            _record(daemon_of(context), out, count, tokens)
        except KeyboardInterrupt:
            screen.say("")
    lost = f", {count.lost} choices lost" if count.lost else ""
    screen.say(f"{file}: {count.tokens} tokens{lost}")
    return 0


class _Count:
    """What was written."""

    tokens = 0
    lost = 0


def _record(daemon: Daemon, out: BinaryIO, count: _Count, tokens: int | None) -> None:
    with closing(daemon.lines("/trace", {})) as lines:
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            if "error" in said:
                raise error_of(500, said)
            out.write(line + b"\n")
            out.flush()
            count.tokens += "choices" in said
            count.lost = said.get("lost", count.lost)
            if tokens is not None and count.tokens >= tokens:
                return
