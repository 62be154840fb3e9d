"""`optanectl slots`: what each slot of the loaded model does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from optaned.cli.ctl.options import daemon_of, json_option
from optaned.cli.ctl.terminal import print_json, print_table


@click.command("slots")
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int:
    """Show what each slot does; no text is shown.

    \b
    JSON: a list of {slot, state (idle|prefill|decode), request, prompt_tokens, prefilled_tokens, completion_tokens,
    cached_tokens}.
    """
    slots = daemon_of(context).get("/slots")
    if as_json:
        print_json(sys.stdout, slots)
        return 0
    print_table(sys.stdout, [("SLOT", "STATE", "PROMPT", "REUSED", "ANSWER"), *map(_row, slots)])
    return 0


def _row(slot: Mapping[str, Any]) -> tuple[str, ...]:
    prompt = f"{slot['prefilled_tokens']}/{slot['prompt_tokens']}"
    return str(slot["slot"]), slot["state"], prompt, str(slot["cached_tokens"]), str(slot["completion_tokens"])
