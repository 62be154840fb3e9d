"""The way from nothing to a resolved configuration: find the file, read it, load its plugins, resolve it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from optaned.config.load import load, read_draft
from optaned.config.resolve import ResolvedConfig, ResolvedGuard, resolve_draft, resolve_guard
from optaned.config.schema import Config
from optaned.errors import MissingFileError
from optaned.hooks.host import PluginHost
from optaned.hooks.spec import GROUP, GUARD_GROUP

SYSTEM_FILE = Path("/etc/optaned/optaned.toml")


@dataclass(frozen=True, slots=True)
class OpenedConfig:
    """A resolved configuration with the plugins it runs on."""

    resolved: ResolvedConfig
    host: PluginHost
    guard_host: PluginHost


def find_config(explicit: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file to read: the one named, $OPTANED_CONFIG, or the first that exists of the usual places.

    Raises MissingFileError, naming what was tried.
    """
    if explicit is not None:
        return explicit
    if chosen := environ.get("OPTANED_CONFIG"):
        return Path(chosen)
    places = usual_places(environ)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        tried = ", ".join(map(str, places))
        raise MissingFileError(f"no configuration found (tried {tried}); name one with --config or OPTANED_CONFIG")
    return found


def usual_places(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return where a configuration lies by default: here, the user's, the system's."""
    home = Path(environ["XDG_CONFIG_HOME"]) if environ.get("XDG_CONFIG_HOME") else Path("~/.config").expanduser()
    return [Path("optaned.toml"), home / "optaned" / "optaned.toml", SYSTEM_FILE]


def open_config(file: Path, environ: Mapping[str, str] = os.environ, *, look_for_files: bool = True) -> OpenedConfig:
    """Return a file's configuration with its declarations. Raises MissingFileError, or ConfigError with all faults."""
    draft = read_draft(file, environ)
    host, guard_host = discover_plugins(draft.config, file=file), discover_guard_plugins(draft.config, file=file)
    return OpenedConfig(resolve_draft(draft, host, guard_host, look_for_files=look_for_files), host, guard_host)


def open_guard_config(file: Path, environ: Mapping[str, str] = os.environ) -> tuple[ResolvedGuard, PluginHost]:
    """Return the guard's part of a file and its plugins, importing no others. Raises as `open_config`."""
    config = load(file, environ)
    host = discover_guard_plugins(config, file=file)
    return resolve_guard(config, host, file=file), host


def discover_plugins(config: Config, *, file: Path) -> PluginHost:
    """Return all plugins of the server, engine and command line that are not disabled."""
    return PluginHost.discover(GROUP, disabled=config.plugins.disable, path=plugin_folder(config, file=file))


def discover_guard_plugins(config: Config, *, file: Path) -> PluginHost:
    """Return the guard's plugins that its tables name; as root only those that nobody else could have written.

    A guard's plugin is named like its driver, so that others need not be imported to find out what they offer.
    """
    return PluginHost.discover(
        GUARD_GROUP,
        wanted={t.driver for t in config.sensors.values()}
        | {t.driver for t in config.cooling.values()}
        | {*config.plugins.guard},
        disabled=config.plugins.disable,
        path=plugin_folder(config, file=file),
        trusted_only=os.geteuid() == 0,
    )


def plugin_folder(config: Config, *, file: Path) -> Path | None:
    """Return the folder of single-file plugins; a relative one starts where the configuration lies."""
    path = config.plugins.path
    return None if path is None else file.absolute().parent / path.expanduser()
