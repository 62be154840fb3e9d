"""From names to declarations: every driver that the configuration names, with its validated options; every reference
and model file looked up. Collects all faults before it raises. Opens no driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from optaned.config.files import Finder
from optaned.config.load import Draft
from optaned.config.lookup import Lookup, ResolvedDriver
from optaned.config.quiet import warnings_of
from optaned.config.schema import Config
from optaned.config.settings import Setting, settings_of
from optaned.hooks.host import PluginHost


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model whose files are there. No files: the backend answers without any."""

    name: str
    files: tuple[Path, ...]
    context: int
    chat_format: str
    kv_cache: str
    weights: str | None = None


@dataclass(frozen=True, slots=True)
class ResolvedGuard:
    """What the guard runs on."""

    config: Config
    file: Path
    sensors: Mapping[str, ResolvedDriver]
    coolers: Mapping[str, ResolvedDriver]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """Everything that the pipeline runs on. `settings` are all effective values, each with where it comes from."""

    config: Config
    file: Path
    tiers: Mapping[str, ResolvedDriver]
    sensors: Mapping[str, ResolvedDriver]
    coolers: Mapping[str, ResolvedDriver]
    backend: ResolvedDriver
    policy: ResolvedDriver
    models: Mapping[str, ResolvedModel]
    default_model: str
    warnings: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()

    @property
    def model(self) -> ResolvedModel:
        """Return the default model."""
        return self.models[self.default_model]

    @property
    def origins(self) -> Mapping[str, str]:
        """Return for each key path where its value comes from: "file", "default" or "environment VARIABLE"."""
        return {setting.key: setting.origin for setting in self.settings}


def resolve(
    config: Config,
    host: PluginHost,
    guard_host: PluginHost,
    *,
    file: Path,
    sysroot: Path = Path("/"),
    look_for_files: bool = True,
) -> ResolvedConfig:
    """Return a valid configuration with its declarations. Raises ConfigError with all faults, one a line."""
    draft = Draft(file, config.model_dump(exclude_unset=True), config)
    return resolve_draft(draft, host, guard_host, sysroot=sysroot, look_for_files=look_for_files)


def resolve_draft(
    draft: Draft,
    host: PluginHost,
    guard_host: PluginHost,
    *,
    sysroot: Path = Path("/"),
    look_for_files: bool = True,
) -> ResolvedConfig:
    """Return a draft with its declarations. Raises ConfigError with the draft's faults and those found here.

    `sysroot` stands before every absolute path. `look_for_files=False` takes paths as they are written, for checking a
    configuration on another machine.
    """
    config, lookup = draft.config, Lookup(draft)
    finder = Finder(draft.file.absolute().parent, sysroot, look_for_files=look_for_files)
    tiers = lookup.drivers("tiers", config.tiers, "tiers", host)
    lookup.check_mounts(tiers, finder)
    sensors, coolers = _guard_drivers(lookup, guard_host)
    backend = lookup.selected("engine", "backend", "backends", host)
    policy = lookup.selected("placement", "policy", "placement_policies", host)
    lookup.check_names(("placement", "promote_to"), config.placement.promote_to, "tiers")
    needs_files = backend is not None and backend.driver.needs.model_files
    models = _models(lookup, finder, host, needs_files=needs_files)
    if needs_files:
        lookup.check_any_tier()
    default_model = lookup.default_model()
    lookup.check_promises(guard_host)
    lookup.check_plugins((*host.records, *guard_host.records), finder)
    lookup.finish()
    if backend is None or policy is None:
        raise AssertionError("a driver that was not found left no fault")
    options = {**_options("tiers", tiers), **_options("sensors", sensors), **_options("cooling", coolers)}
    options |= {("engine", backend.name): backend.options, ("placement", policy.name): policy.options}
    return ResolvedConfig(
        config=config,
        file=draft.file,
        tiers=tiers,
        sensors=sensors,
        coolers=coolers,
        backend=backend,
        policy=policy,
        models=models,
        default_model=default_model,
        warnings=(*warnings_of(draft), *lookup.warnings),
        settings=settings_of(draft, options),
    )


def resolve_guard(config: Config, guard_host: PluginHost, *, file: Path) -> ResolvedGuard:
    """Return the guard's part with its declarations, whatever the rest is like. Raises ConfigError."""
    draft = Draft(file, config.model_dump(exclude_unset=True), config)
    lookup = Lookup(draft)
    sensors, coolers = _guard_drivers(lookup, guard_host)
    lookup.check_promises(guard_host)
    lookup.finish()
    return ResolvedGuard(config, file, sensors, coolers, warnings_of(draft, only=("sensors", "cooling", "thermal")))


def _guard_drivers(
    lookup: Lookup, guard_host: PluginHost
) -> tuple[dict[str, ResolvedDriver], dict[str, ResolvedDriver]]:
    config = lookup.draft.config
    for name, sensor in config.sensors.items():
        lookup.check_names(("sensors", name, "covers"), sensor.covers, "tiers")
    for name, cooler in config.cooling.items():
        lookup.check_names(("cooling", name, "cools"), cooler.cools, "sensors")
    sensors = lookup.drivers("sensors", config.sensors, "sensors", guard_host)
    return sensors, lookup.drivers("cooling", config.cooling, "coolers", guard_host)


def _models(lookup: Lookup, finder: Finder, host: PluginHost, *, needs_files: bool) -> dict[str, ResolvedModel]:
    found = {}
    for name, table in lookup.draft.config.models.items():
        lookup.check_chat_format(name, table, host)
        files = lookup.files(name, table, finder, host, needs_files=needs_files)
        numbers = table.quantization
        found[name] = ResolvedModel(name, files, table.context, table.chat_format, numbers.kv_cache, numbers.weights)
    return found


def _options(table: str, drivers: Mapping[str, ResolvedDriver]) -> dict[tuple[str, str], BaseModel]:
    return {(table, name): driver.options for name, driver in drivers.items()}
