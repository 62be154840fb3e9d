"""Look up what a draft names, one kind of name a method, and collect what is wrong. Opens no driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from optaned.config.explain import Fault, faults_of
from optaned.config.explain import Path as KeyPath
from optaned.config.files import Finder
from optaned.config.load import Draft, lines, validate_table
from optaned.config.schema import CoolerTable, ModelTable, SensorTable, TierTable
from optaned.config.table import OpenTable
from optaned.errors import ConfigError, OptanedError, PluginError
from optaned.hooks.drivers import Driver, Env
from optaned.hooks.host import PluginHost
from optaned.hooks.records import DriverKind, PluginRecord, Status
from optaned.hooks.suggest import did_you_mean

DriverTable = TierTable | SensorTable | CoolerTable


@dataclass(frozen=True, slots=True)
class ResolvedDriver:
    """A driver that a table names, with its validated options. `name` is the table's, not the driver's."""

    name: str
    driver: Driver
    options: BaseModel

    def open(self, env: Env) -> Any:
        """Make what the driver makes; raises what the driver raises."""
        return self.driver.open(self.name, self.options, env)


class Lookup:
    """One pass over one draft; `finish` raises everything that was found."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._faults: list[Fault] = list(draft.faults)
        self._warnings: list[Fault] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(lines(self._warnings, self.draft.file))

    def finish(self) -> None:
        """Raise ConfigError with all faults, one a line, if there are any."""
        if self._faults:
            raise ConfigError(*lines(self._faults, self.draft.file))

    def names(self, table: str) -> list[str]:
        """Return the names that a table of tables declares, faulty ones too: a reference to one is no second fault."""
        declared = self.draft.raw.get(table)
        return sorted(declared) if isinstance(declared, Mapping) else []

    def drivers(
        self, table: str, entries: Mapping[str, DriverTable], kind: DriverKind, host: PluginHost
    ) -> dict[str, ResolvedDriver]:
        """Return the declarations that the entries of `[table.…]` name, with their options."""
        found = {}
        for name, entry in entries.items():
            driver = self._driver((table, name, "driver"), kind, entry.driver, host)
            if driver is None:
                continue
            keys = entry.driver_keys | self._shared_keys(driver, entry, (table, name))
            options = self._options(driver, keys, (table, name), also=type(entry).model_fields)
            if options is not None:
                found[name] = ResolvedDriver(name, driver, options)
        return found

    def selected(self, table: str, key: str, kind: DriverKind, host: PluginHost) -> ResolvedDriver | None:
        """Return the driver that `[table] key` selects; its options are `[table.NAME]`. None after a fault."""
        section: OpenTable = getattr(self.draft.config, table)
        choice: str = getattr(section, key)
        known = {driver.name for driver in host.drivers(kind)}
        for name, value in section.driver_keys.items():
            if name not in known | {choice}:
                near = did_you_mean(name, [*type(section).model_fields, *known])
                self._faults.append(Fault((table, name), f"unknown key{near}"))
            elif not isinstance(value, Mapping):
                self._faults.append(Fault((table, name), f"must be a table, [{table}.{name}]"))
            elif name != choice:
                self._warnings.append(Fault((table, name), f"has no effect while {table}.{key} is {choice!r}"))
        driver = self._driver((table, key), kind, choice, host)
        own = section.driver_keys.get(choice, {})
        options = self._options(driver, own, (table, choice)) if driver and isinstance(own, Mapping) else None
        return ResolvedDriver(choice, driver, options) if driver and options else None

    def check_names(self, path: KeyPath, names: Iterable[str], table: str) -> None:
        """Check that `names` at `path` are declared in `[table.…]`, each of them once."""
        known = self.names(table)
        met: set[str] = set()
        for place, name in enumerate(names):
            if name in met:
                self._faults.append(Fault((*path, place), f"{name!r} is there already; name it once"))
            met.add(name)
            if name not in known:
                near = did_you_mean(name, known) or f"; declared: {', '.join(known) or 'none'}"
                self._faults.append(Fault((*path, place), f"there is no [{table}.{name}]{near}"))

    def check_any_tier(self) -> None:
        """Warn where there is no tier: nothing can be loaded then, for want of a place for the KV cache."""
        if not self.names("tiers"):
            text = 'none is declared, so that no model can be loaded; add [tiers.dram0] with driver = "memory"'
            self._warnings.append(Fault(("tiers",), text))

    def check_mounts(self, tiers: Mapping[str, ResolvedDriver], finder: Finder) -> None:
        """Check that no two tiers lie on one path."""
        owners: dict[Path, str] = {}
        for name, tier in tiers.items():
            for key in ("mount", "path"):
                place = getattr(tier.options, key, None)
                if not isinstance(place, (str, Path)):
                    continue
                real = finder.real(place)
                first = owners.setdefault(real, name)
                if first != name:
                    text = f"{place} is the place of tier {first!r} already; one path cannot be two tiers"
                    self._faults.append(Fault(("tiers", name, key), text))

    def check_chat_format(self, model: str, table: ModelTable, host: PluginHost) -> None:
        """Check that a model's chat format exists."""
        if table.chat_format != "auto":
            self._driver(("models", model, "chat_format"), "chat_formats", table.chat_format, host)

    def check_promises(self, host: PluginHost) -> None:
        """Check that the guard's plugins which are asked for by name, not through a driver, were loaded."""
        asked = self.draft.config.plugins.guard
        for record in host.records:
            if record.name in asked and record.status is not Status.LOADED:
                text = f"plugin {record.source}: {record.status}: {record.reason}"
                self._faults.append(Fault(("plugins", "guard", asked.index(record.name)), text))

    def check_plugins(self, records: Iterable[PluginRecord], finder: Finder) -> None:
        """Check that `[plugins] path` is a folder, and that `disable` names plugins that there are."""
        table, known = self.draft.config.plugins, sorted({record.name for record in records})
        if table.path is not None and finder.look_for_files and not finder.real(table.path).is_dir():
            self._faults.append(Fault(("plugins", "path"), f"no such folder: {table.path}"))
        for place, name in enumerate(table.disable):
            if name not in known:
                text = f"no plugin is named {name!r}{did_you_mean(name, known)}; see: optaned plugins"
                self._warnings.append(Fault(("plugins", "disable", place), text))

    def files(
        self, model: str, table: ModelTable, finder: Finder, host: PluginHost, *, needs_files: bool
    ) -> tuple[Path, ...]:
        """Return a model's shards."""
        at = ("models", model)
        if table.ref is not None:
            return self._referred((*at, "ref"), table.ref, host) if finder.look_for_files else ()
        if needs_files and not table.files:
            is_faulty = any(f.path[:3] == (*at, "files") for f in self._faults)
            if not is_faulty:
                self._faults.append(Fault(at, "names no files; add files = […] or ref = …"))
        files, faults = finder.find(table.files)
        self._faults += (Fault((*at, "files", place), text) for place, text in faults)
        return files

    def default_model(self) -> str:
        """Return the model to load: the named one, or the only one."""
        chosen, known = self.draft.config.default_model, self.names("models")
        if chosen is not None:
            if chosen not in known:
                near = did_you_mean(chosen, known) or f"; declared: {', '.join(known) or 'none'}"
                self._faults.append(Fault(("default_model",), f"there is no [models.{chosen}]{near}"))
            return chosen
        if len(known) == 1:
            return known[0]
        if any(f.path[1:] == () and "'default_model'" in f.text for f in self._faults):
            return ""  # it is there, misspelled
        if known:
            text = f"is required, because several models are declared: {', '.join(known)}"
            self._faults.append(Fault(("default_model",), text))
        elif not any(f.path[:1] == ("models",) for f in self._faults):
            self._faults.append(Fault(("models",), "no model is declared; add a table [models.NAME] with files = […]"))
        return ""

    def _shared_keys(self, driver: Driver, entry: DriverTable, at: tuple[str, str]) -> dict[str, Any]:
        """Return what is set of the core's keys that the driver knows too: a sensor may want to know its limit."""
        own = entry.model_fields_set - {"driver"} - set(entry.driver_keys)
        return {key: self.draft.raw[at[0]][at[1]][key] for key in own & set(driver.options.model_fields)}

    def _driver(self, path: KeyPath, kind: DriverKind, name: str, host: PluginHost) -> Driver | None:
        try:
            return host.driver(kind, name)
        except PluginError as error:
            self._faults += (Fault(path, line) for line in error.lines)
            return None

    def _options(
        self, driver: Driver, table: Mapping[str, Any], at: KeyPath, *, also: Iterable[str] = ()
    ) -> BaseModel | None:
        try:
            return validate_table(driver.options, table)
        except ValidationError as error:
            self._faults += faults_of(error, driver.options, at=at, also=also)
        except Exception as error:  # noqa: BLE001  a stranger's validator may raise anything; it becomes a fault
            text = " ".join(f"driver {driver.name!r} cannot check its options: {type(error).__name__}: {error}".split())
            self._faults.append(Fault(at, f"{text}; tell its author"))
        return None

    def _referred(self, path: KeyPath, ref: str, host: PluginHost) -> tuple[Path, ...]:
        try:
            found = host.first("optaned_resolve_model", ref=ref)
        except OptanedError as error:
            self._faults += (Fault(path, line) for line in error.lines)
            return ()
        if found is None:
            self._faults.append(
                Fault(path, f"no plugin knows {ref.partition(':')[0]!r} references; see: optaned plugins")
            )
            return ()
        if isinstance(found, Sequence) and found and all(isinstance(file, Path) for file in found):
            return tuple(found)
        self._faults.append(Fault(path, f"a plugin answered {ref!r} with {type(found).__name__}, not a list of paths"))
        return ()
