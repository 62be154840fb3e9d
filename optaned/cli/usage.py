"""One line for what is wrong with a command line, where click would print three. Knows click, no verb."""

from __future__ import annotations

import click


def usage_line(error: click.ClickException, program: str) -> str:
    """Return `program verb: what is wrong; see: program verb --help`."""
    text = error.format_message().rstrip(".").replace(". Did you mean", "; did you mean")
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else program
    return f"{command}: {text[:1].lower()}{text[1:]}{'' if text.endswith('?') else ';'} see: {command} --help"
