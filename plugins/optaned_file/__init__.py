"""Tier driver `file`: a folder on a disk (NVMe, SSD, network). Its bytes are reached in pages through the page cache.

Knows how much room the file system has; measures nothing and moves nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from optaned.api import Driver, Env, MissingFileError, Options, TierInfo, TierKind, UnavailableError, hookimpl

OPTANED_API = (1, 0)


class FileOptions(Options):
    mount: Annotated[Path, Field(strict=False)]
    """Folder or mount point below which the model files lie."""
    read_gbps: Annotated[float, Field(gt=0)] | None = None
    """Sequential read speed in GB/s, where it is known."""


@dataclass(frozen=True)
class FileTier:
    """A folder, seen through statvfs."""

    name: str
    options: FileOptions
    env: Env

    def probe(self) -> TierInfo:
        """Return the file system's size and what an ordinary user may still write. Raises OptanedError."""
        folder = self.env.path(self.options.mount)
        if not folder.is_dir():
            raise MissingFileError(f"{self.options.mount}: no such folder; mount it or correct `mount`")
        try:
            room = os.statvfs(folder)
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            raise UnavailableError(f"{self.options.mount}: its file system does not answer: {cause}") from None
        return TierInfo(
            name=self.name,
            driver="file",
            kind=TierKind.BLOCK,
            capacity_bytes=room.f_blocks * room.f_frsize,
            free_bytes=room.f_bavail * room.f_frsize,
            read_gbps=self.options.read_gbps,
            mount=folder.resolve(),
        )

    def close(self) -> None:
        """Nothing is held open."""


@hookimpl
def optaned_tiers() -> list[Driver]:
    """Declare the tier driver `file`."""
    return [Driver("file", FileOptions, FileTier, "a folder on a disk: NVMe, SSD or network")]
