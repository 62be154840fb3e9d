"""Load plugins and call their hooks so that one bad plugin is one bad record and costs no other plugin anything.

Constructed and passed down, never global. Knows no configuration: what to load is told, what was asked for by name is
found or explained.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pluggy

from optaned.domain.thermal import Level, Proposal, Snapshot, Vote
from optaned.errors import OptanedError, PluginError
from optaned.hooks import spec
from optaned.hooks.calls import Calls, one_line
from optaned.hooks.discovery import Candidate, find_files, find_installed
from optaned.hooks.drivers import Driver
from optaned.hooks.inspection import api_fault, driver_fault, hook_fault
from optaned.hooks.records import KIND_WORDS, DriverKind, PluginRecord, Status
from optaned.hooks.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class Offer:
    """A driver with the plugin that offers it."""

    kind: DriverKind
    driver: Driver
    plugin: str


class PluginHost:
    """The plugins of one entry-point group, and what they offer."""

    def __init__(self, group: str = spec.GROUP) -> None:
        self.group = group
        self._manager = pluggy.PluginManager(spec.GROUP)
        self._manager.add_hookspecs(spec)
        self._records: list[PluginRecord] = []
        self._offers: list[Offer] = []
        self._calls = Calls()

    @classmethod
    def discover(
        cls,
        group: str = spec.GROUP,
        *,
        wanted: Collection[str] | None = None,
        disabled: Collection[str] = (),
        path: Path | None = None,
        trusted_only: bool = False,
    ) -> PluginHost:
        """Return a host with every plugin of `group` loaded, each isolated.

        `wanted` limits loading to plugins of these names; `disabled` leaves plugins out; `path` adds a folder of
        single-file plugins; `trusted_only` refuses code that anybody but root could write. Raises nothing: what went
        wrong is in `records`.
        """
        host = cls(group)
        found = list(find_installed(group, trusted_only=trusted_only))
        if path is not None:
            found += host._find_files(path, trusted_only=trusted_only)
        for name, same in itertools.groupby(sorted(found, key=lambda c: (c.name, c.distribution)), lambda c: c.name):
            candidates = list(same)
            if name in disabled or (wanted is not None and name not in wanted):
                why = "[plugins] disable names it" if name in disabled else "the configuration does not name it"
                host._records += (PluginRecord(name, c.distribution, Status.DISABLED, why) for c in candidates)
            elif len(candidates) > 1:
                host._refuse_all(candidates)
            else:
                host._load(candidates[0])
        for name in sorted(set(wanted or ()) - {r.name for r in host._records}):
            reason = f"no installed distribution has an entry point {name!r} in the group {group!r}"
            host._records.append(PluginRecord(name, status=Status.NOT_INSTALLED, reason=reason))
        return host

    def register(self, plugin: object, name: str, distribution: str = "") -> PluginRecord:
        """Take a plugin (a module or any object with hooks) under `name` and return its record."""
        record = self._admit(plugin, PluginRecord(name, distribution))
        self._records.append(record)
        return record

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """Every plugin of the group that was found or wanted, sorted by name."""
        counted = (replace(r, failures=r.failures + self._calls.failures(r.name)) for r in self._records)
        return tuple(sorted(counted, key=lambda r: (r.name, r.distribution)))

    def drivers(self, kind: DriverKind) -> tuple[Driver, ...]:
        """Return all drivers of a kind, sorted by name; a name that two plugins offer appears twice."""
        return tuple(o.driver for o in self._of(kind))

    def collisions(self) -> tuple[str, ...]:
        """Return one line for each driver name that several plugins offer."""
        names = sorted({(o.kind, o.driver.name) for o in self._offers})
        return tuple(
            self._collision(kind, name, offers)
            for kind, name in names
            if len(offers := [o for o in self._of(kind) if o.driver.name == name]) > 1
        )

    def driver(self, kind: DriverKind, name: str) -> Driver:
        """Return the one driver of this kind and name.

        Raises PluginError, one line: two plugins offer it, the plugin that would is broken, or nobody does (with the
        likely name and all known ones).
        """
        offers = [o for o in self._of(kind) if o.driver.name == name]
        if len(offers) == 1:
            return offers[0].driver
        raise PluginError(self._collision(kind, name, offers) if offers else self._unknown(kind, name))

    def first(self, hook: str, **arguments: Any) -> Any:
        """Return the first answer that is not None, plugins asked in the order of their names; else None.

        An OptanedError is an answer too ("yes, mine, but the file is missing") and is passed on.
        """
        return next(
            (result for _, result in self._call(hook, arguments, pass_on=OptanedError) if result is not None), None
        )

    def votes(self, snapshot: Snapshot, proposal: Proposal) -> tuple[Vote, ...]:
        """Return the sound votes of all plugins, each with its plugin's name before its reason."""
        votes = []
        for plugin, vote in self._call("optaned_governor_vote", {"snapshot": snapshot, "proposal": proposal}):
            if isinstance(vote, Vote) and _is_sound(vote):
                votes.append(replace(vote, reason=f"{plugin}: {vote.reason or 'no reason given'}"))
            elif vote is not None:
                self._calls.fail(plugin, "optaned_governor_vote", f"returned {one_line(repr(vote))}, not a sound Vote")
        return tuple(votes)

    def event(self, event: Mapping[str, Any]) -> None:
        """Tell all listeners of something that happened. Never raises."""
        for _ in self._call("optaned_event", {"event": event}):
            pass

    # ---- loading -----------------------------------------------------------------------------------------------------

    def _find_files(self, path: Path, *, trusted_only: bool) -> list[Candidate]:
        try:
            return list(find_files(path, self.group, trusted_only=trusted_only))
        except OSError as error:
            reason = f"[plugins] path cannot be read: {error.strerror or error}"
            self._records.append(PluginRecord("path", str(path), Status.REFUSED, reason))
            return []

    def _refuse_all(self, candidates: Iterable[Candidate]) -> None:
        candidates = list(candidates)
        both = " and ".join(c.distribution for c in candidates)
        for c in candidates:
            reason = f"several plugins have this name: {both}; uninstall one"
            self._records.append(PluginRecord(c.name, c.distribution, Status.REFUSED, reason))

    def _load(self, candidate: Candidate) -> None:
        record = PluginRecord(candidate.name, candidate.distribution)
        if candidate.refusal:
            self._records.append(replace(record, status=Status.REFUSED, reason=candidate.refusal))
            return
        try:
            plugin = candidate.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a stranger's module may raise anything; it is on the record
            reason = one_line(f"{type(error).__name__}: {error}")
            self._records.append(replace(record, status=Status.IMPORT_FAILED, reason=reason))
            return
        self._records.append(self._admit(plugin, record))

    def _admit(self, plugin: object, record: PluginRecord) -> PluginRecord:
        try:
            fault = api_fault(plugin)
            if fault:
                return replace(record, status=Status.API_MISMATCH, reason=fault)
            fault = hook_fault(plugin, self._manager, self.group) or self._register(plugin, record.name)
        except Exception as error:  # noqa: BLE001  a module may answer even `getattr` with anything; it is on the record
            fault = one_line(f"looking at it raised {type(error).__name__}: {error}")
        if fault:
            return replace(record, status=Status.HOOK_MISMATCH, reason=fault)
        return self._declare(record)

    def _register(self, plugin: object, name: str) -> str | None:
        """Register with pluggy, which checks arguments; undo what a failed registration leaves behind."""
        before = self._manager.get_name(plugin)
        if before is not None or self._manager.has_plugin(name):
            return f"the same plugin is loaded as {before or name!r}"
        try:
            self._manager.register(plugin, name=name)
        except (pluggy.PluginValidationError, ValueError) as error:
            if self._manager.has_plugin(name):
                self._manager.unregister(name=name)
            return one_line(str(error).partition("\n")[2] or str(error))
        return None

    def _declare(self, record: PluginRecord) -> PluginRecord:
        """Call the plugin's declaring hooks. A wrong result costs the whole plugin, an exception only that hook."""
        offers, faults = [], []
        for kind in KIND_WORDS:
            hook = f"optaned_{kind}"
            for impl in self._implementations(hook, record.name):
                try:
                    declared: Any = impl.function()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001  it is on the record
                    faults.append(one_line(f"{hook} raised {type(error).__name__}: {error}"))
                    continue
                fault = driver_fault(hook, declared)
                if fault:
                    self._manager.unregister(name=record.name)
                    return replace(record, status=Status.HOOK_MISMATCH, reason=fault)
                offers += [Offer(kind, driver, record.name) for driver in declared]
        self._offers += offers
        return replace(
            record,
            status=Status.HOOK_FAILED if faults else Status.LOADED,
            reason="; ".join(faults),
            failures=len(faults),
            drivers=tuple(sorted(f"{o.kind}/{o.driver.name}" for o in offers)),
            hooks=self._hooks(record.name),
        )

    def _hooks(self, name: str) -> tuple[str, ...]:
        callers = self._manager.get_hookcallers(self._manager.get_plugin(name)) or []
        return tuple(sorted(caller.name for caller in callers))

    # ---- calling and explaining --------------------------------------------------------------------------------------

    def _implementations(self, hook: str, plugin: str | None = None) -> list[pluggy.HookImpl]:
        found = getattr(self._manager.hook, hook).get_hookimpls()
        return sorted((i for i in found if plugin in (None, i.plugin_name)), key=lambda i: i.plugin_name)

    def _call(
        self, hook: str, arguments: Mapping[str, Any], *, pass_on: type[Exception] | tuple[()] = ()
    ) -> Iterator[tuple[str, Any]]:
        for impl in self._implementations(hook):
            with self._calls.isolate(impl.plugin_name, hook, pass_on=pass_on) as call:
                call.result = impl.function(*(arguments[name] for name in impl.argnames))
            if call.done:
                yield impl.plugin_name, call.result

    def _of(self, kind: DriverKind) -> list[Offer]:
        return sorted((o for o in self._offers if o.kind == kind), key=lambda o: (o.driver.name, o.plugin))

    def _source(self, plugin: str) -> str:
        return next(r.source for r in self._records if r.name == plugin)

    def _collision(self, kind: DriverKind, name: str, offers: Iterable[Offer]) -> str:
        both = " and ".join(self._source(o.plugin) for o in offers)
        return f"{KIND_WORDS[kind]} {name!r} is offered by {both}; name one of them in [plugins] disable"

    def _unknown(self, kind: DriverKind, name: str) -> str:
        unfit = [r for r in self.records if r.status is not Status.LOADED]
        own = next((r for r in unfit if r.name == name), None)
        if own is not None:
            return f"{KIND_WORDS[kind]} {name!r}: plugin {own.source}: {own.status}: {own.reason}"
        known = sorted({o.driver.name for o in self._of(kind)})
        text = (
            f"no {KIND_WORDS[kind]} is named {name!r}{did_you_mean(name, known)}; known: {', '.join(known) or 'none'}"
        )
        broken = [f"{r.source}: {r.status}: {r.reason}" for r in unfit if r.status.is_broken]
        return f"{text}; not loaded: {'; '.join(broken)}" if broken else text


def _is_sound(vote: Vote) -> bool:
    shares = [s for s in (vote.duty, vote.cooling) if s is not None]
    return isinstance(vote.level, Level | None) and all(_is_share(s) for s in shares)


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 1
