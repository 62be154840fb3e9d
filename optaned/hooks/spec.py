"""The hooks. A plugin implements any of them with `@hookimpl`; each may take fewer arguments than its spec.

Hooks that declare are called once, when the host loads the plugin; they return drivers and do nothing else. A hook that
raises costs its plugin that one call and a line in `optaned plugins`; it never costs another plugin anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pluggy

from optaned.domain.thermal import Proposal, Snapshot, Vote
from optaned.hooks.drivers import Driver

GROUP = "optaned"
GUARD_GROUP = "optaned.guard"
GUARD_HOOKS = frozenset({"optaned_sensors", "optaned_coolers", "optaned_governor_vote"})
API = (1, 0)

hookspec = pluggy.HookspecMarker("optaned")
hookimpl = pluggy.HookimplMarker("optaned")


@hookspec
def optaned_tiers() -> Sequence[Driver]:  # type: ignore[empty-body]
    """Declare tier drivers for `[tiers.NAME] driver = …`; `open` returns a `Tier`."""


@hookspec
def optaned_backends() -> Sequence[Driver]:  # type: ignore[empty-body]
    """Declare backends for `[engine] backend = …`; `open` returns a `Backend` and runs in a child process."""


@hookspec
def optaned_placement_policies() -> Sequence[Driver]:  # type: ignore[empty-body]
    """Declare placement policies for `[placement] policy = …`; `open` returns a `PlacementPolicy`."""


@hookspec
def optaned_chat_formats() -> Sequence[Driver]:  # type: ignore[empty-body]
    """Declare chat formats for `chat_format = …`; `open(name, ChatSetting, env)` returns a `ChatFormat`."""


@hookspec
def optaned_sensors() -> Sequence[Driver]:  # type: ignore[empty-body]
    """Declare sensors for `[sensors.NAME] driver = …`; group `optaned.guard`; `open` returns a `Sensor`."""


@hookspec
def optaned_coolers() -> Sequence[Driver]:  # type: ignore[empty-body]
    """Declare coolers for `[cooling.NAME] driver = …`; group `optaned.guard`; `open` returns a `Cooler`."""


@hookspec
def optaned_commands() -> Sequence[Driver]:  # type: ignore[empty-body]
    """Declare further verbs of `optaned`; `open` returns a `click.Command`."""


@hookspec(firstresult=True)
def optaned_resolve_model(ref: str) -> Sequence[Path] | None:
    """Return the GGUF shards that a model reference ("scheme:rest") stands for, or None if it is not yours.

    Called while the configuration is resolved. The first plugin, by name, that answers wins.
    """


@hookspec
def optaned_governor_vote(snapshot: Snapshot, proposal: Proposal) -> Vote | None:
    """Ask for more cooling, a lower duty or a higher level than proposed; group `optaned.guard`. None abstains.

    Called once a tick, in the guard. Votes can only cool: the core takes the highest level, the least duty, the most
    cooling. A vote that raises counts as no vote.
    """


@hookspec
def optaned_event(event: Mapping[str, Any]) -> None:
    """Hear of something that happened (`event["kind"]`); called in the server, never as root. Returns nothing."""
