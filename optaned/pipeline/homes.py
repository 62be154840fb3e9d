"""Home tiers that nobody declared: the file systems of shards that lie on no tier of the configuration.

A laptop's model in some folder then needs no `[tiers]` table; it is treated as what it is, a file on a disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from optaned.domain.model import ModelIndex
from optaned.domain.tiers import TierInfo, TierKind, home_of
from optaned.errors import UnavailableError

UNDECLARED_DRIVER = "undeclared"


def add_homes(tiers: tuple[TierInfo, ...], index: ModelIndex) -> tuple[TierInfo, ...]:
    """Return the tiers and one more for each file system that holds a shard and belongs to no tier."""
    for shard in index.shards:
        if home_of(shard.lies_at, tiers) is None:
            tiers = (*tiers, _file_system(shard.lies_at, taken={tier.name for tier in tiers}))
    return tiers


def _file_system(path: Path, *, taken: set[str]) -> TierInfo:
    try:
        mount = path.parent
        while mount != mount.parent and not mount.is_mount():
            mount = mount.parent
        room = os.statvfs(mount)
    except OSError as error:
        raise UnavailableError(
            f"{path}: its file system does not answer: {(error.strerror or str(error)).lower()}"
        ) from None
    name = next(name for name in ("disk", *(f"disk{n}" for n in range(2, len(taken) + 3))) if name not in taken)
    size = room.f_frsize
    return TierInfo(name, UNDECLARED_DRIVER, TierKind.BLOCK, room.f_blocks * size, room.f_bavail * size, mount=mount)
