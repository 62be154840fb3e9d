"""What became of each plugin: one record, whatever happened. Knows no loading and no calling."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

DriverKind = Literal["tiers", "backends", "placement_policies", "chat_formats", "sensors", "coolers", "commands"]

KIND_WORDS: dict[DriverKind, str] = {
    "tiers": "tier driver",
    "backends": "backend",
    "placement_policies": "placement policy",
    "chat_formats": "chat format",
    "sensors": "sensor driver",
    "coolers": "cooler driver",
    "commands": "command",
}
"""Each kind of driver, with the words that messages use for one of it. The hook is `optaned_` + kind."""


class Status(enum.StrEnum):
    LOADED = "loaded"
    DISABLED = "disabled"
    IMPORT_FAILED = "import failed"
    HOOK_MISMATCH = "hook mismatch"
    HOOK_FAILED = "hook failed"
    API_MISMATCH = "api mismatch"
    REFUSED = "refused"
    NOT_INSTALLED = "not installed"

    @property
    def is_broken(self) -> bool:
        """Say whether something is wrong with the plugin that its author or the user must fix."""
        return self not in (Status.LOADED, Status.DISABLED)


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plugin of one entry-point group.

    `distribution` is "name version", or the path of a single-file plugin. `drivers` are "kind/name", `hooks` the names
    of the hooks it implements; `failures` counts the calls that raised or returned nonsense since the host was made.
    """

    name: str
    distribution: str = ""
    status: Status = Status.LOADED
    reason: str = ""
    drivers: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    failures: int = 0

    @property
    def source(self) -> str:
        """Return the plugin as messages name it: "name (distribution)"."""
        return f"{self.name} ({self.distribution})" if self.distribution else self.name
