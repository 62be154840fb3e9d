"""Verbs that plugins add to `optaned`. A broken plugin costs its own verb; the others still work."""

from __future__ import annotations

import logging
from functools import cache

import click
from pydantic import ValidationError

from optaned.config.load import read_draft
from optaned.config.open import discover_plugins, find_config
from optaned.errors import OptanedError, PluginError
from optaned.hooks.drivers import Env
from optaned.hooks.host import PluginHost


def plugin_verbs() -> dict[str, str]:
    """Return the names of plugins' verbs with their summaries."""
    return {driver.name: driver.summary for driver in _host().drivers("commands")}


def load_plugin_verb(name: str) -> click.Command | None:
    """Return a plugin's verb, or None when no plugin has one of this name. Raises PluginError when it is broken."""
    if name not in plugin_verbs():
        return None
    driver = _host().driver("commands", name)
    try:
        command = driver.open(name, driver.options.model_validate({}), Env(log=logging.getLogger(f"optaned.{name}")))
    except ValidationError:
        raise PluginError(f"verb {name!r} of a plugin needs options, and verbs have no table to set them in") from None
    if not isinstance(command, click.Command):
        raise PluginError(f"verb {name!r} of a plugin is a {type(command).__name__}, not a click.Command")
    return command


@cache
def _host() -> PluginHost:
    """Return the plugins, by the usual configuration if it can be read: a verb must not depend on a sound one."""
    try:
        file = find_config(None)
        return discover_plugins(read_draft(file).config, file=file)
    except OptanedError:
        return PluginHost.discover()
