"""The verbs of `optaned`, in the order of its help.

A verb is imported when it is used, because a guard must not import a server.
To add one: write `optaned/cli/NAME.py` with a `click.Command` called like the verb, and a line here.
"""

from __future__ import annotations

import importlib

import click

VERBS = {
    "check": "Validate a configuration and say everything that is wrong with it.",
    "plugins": "List the plugins, what they offer, and what is wrong with them.",
    "probe": "Say what each tier is, how large and how fast.",
    "plan": "Say where every byte of the model would live.",
    "stage": "Copy a model's shards to the mounts that it is served from.",
    "serve": "Run the daemon.",
    "guard": "Run the guard alone: sensors, decisions, the thermal word.",
    "demo": "Start a daemon, ask it one question, show what it did, stop it.",
}


def load_verb(name: str) -> click.Command | None:
    """Return a verb's command, or None when there is no such verb."""
    if name not in VERBS:
        return None
    command: click.Command = getattr(importlib.import_module(f"optaned.cli.{name}"), name)
    return command
