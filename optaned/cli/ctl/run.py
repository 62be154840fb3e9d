"""`optanectl run`: one question, one answer, for people and for pipes."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Sequence

import click

from optaned.cli.ctl.asking import Asking, Question
from optaned.cli.ctl.options import daemon_of, sampling_options, terminal
from optaned.errors import UsageError


@click.command("run")
@click.argument("prompt", nargs=-1)
@sampling_options
@click.option("--verbose", is_flag=True, help="Print timings to stderr after the answer.")
@click.pass_context
def command(
    context: click.Context,
    prompt: Sequence[str],
    model: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    *,
    verbose: bool,
) -> int:
    """Ask once and stream the answer to stdout.

    Words of PROMPT are joined; what is piped in is appended to them. Ctrl-C cancels the answer and exits with 130.
    """
    text = _question(prompt, _piped())
    messages = [{"role": "user", "content": text}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    screen = terminal()
    asking = Asking(daemon_of(context), screen)
    try:
        asking.show(Question(messages, model, max_tokens, temperature, seed))
    except KeyboardInterrupt:
        screen.say("optanectl: answer cancelled")
        return 130
    if verbose:
        for line in asking.answer.timings(time.monotonic()):
            screen.say(line)
    elif screen.live:
        screen.say(asking.answer.summary)
    return 0


def _question(prompt: Sequence[str], piped: str) -> str:
    parts = [part for part in (" ".join(prompt), piped.strip("\n")) if part.strip()]
    if not parts:
        raise UsageError('no prompt: optanectl run "a question", or pipe one in; for a conversation: optanectl chat')
    return "\n\n".join(parts)


def _piped() -> str:
    """Return what a pipe or a file on stdin holds; a terminal or /dev/null is no question."""
    if sys.stdin is None or stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")
