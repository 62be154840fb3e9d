"""Where shards may be staged to: tiers that have a mount, and plain folders. Looks at file systems, changes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optaned.domain.tiers import TierInfo
from optaned.errors import ConfigError, MissingFileError, UnavailableError, UsageError
from optaned.pipeline.staging.assign import Room


@dataclass(frozen=True, slots=True)
class Target:
    """A folder to stage to, with what is free there and how fast it is read, if that is known."""

    name: str
    folder: Path
    device: int
    free_bytes: int
    read_gbps: float | None = None
    numa_node: int | None = None

    @property
    def room(self) -> Room:
        return Room(self.name, self.device, self.free_bytes, self.read_gbps)


def folder_target(folder: Path) -> Target:
    """Return a plain folder as a target. Raises MissingFileError or UnavailableError."""
    return _target(str(folder), folder.absolute())


def tier_target(tier: TierInfo) -> Target:
    """Return a tier's mount as a target. Raises ConfigError for a tier that holds no files."""
    if tier.mount is None:
        raise ConfigError(f"tier {tier.name} (driver {tier.driver}) holds no files; stage to a tier that has a mount")
    return _target(tier.name, tier.mount, tier.read_gbps, tier.numa_node)


def distinct(targets: Sequence[Target]) -> tuple[Target, ...]:
    """Return the targets. Raises UsageError where two are one folder."""
    seen: dict[Path, Target] = {}
    for target in targets:
        real = target.folder.resolve()
        if real in seen:
            raise UsageError(f"--to {target.name}: the same folder as --to {seen[real].name}; name it once")
        seen[real] = target
    return tuple(targets)


def _target(name: str, folder: Path, read_gbps: float | None = None, numa_node: int | None = None) -> Target:
    if not folder.is_dir():
        raise MissingFileError(f"--to {name}: there is no folder {folder}; is its file system mounted?")
    try:
        room, device = os.statvfs(folder), folder.stat().st_dev
    except OSError as error:
        raise UnavailableError(f"--to {name}: {folder}: {(error.strerror or str(error)).lower()}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UnavailableError(f"--to {name}: {folder}: nothing may be written there by this user")
    return Target(name, folder, device, room.f_bavail * room.f_frsize, read_gbps, numa_node)
