"""Tier driver `fsdax`: PMem in App Direct mode, mounted with DAX. Its bytes are read in place, without page cache.

Joins what the mount says (`mounts`), whether that is true (`proof`) and which modules are behind it (`regions`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from optaned.api import (
    ConfigError,
    Driver,
    Env,
    MissingFileError,
    Needs,
    Options,
    TierInfo,
    TierKind,
    UnavailableError,
    hookimpl,
    is_dax,
)
from optaned_fsdax.mounts import Mount, mount_of
from optaned_fsdax.proof import prove
from optaned_fsdax.regions import Region, region_of

OPTANED_API = (1, 0)


class FsdaxOptions(Options):
    mount: Annotated[Path, Field(strict=False)]
    """Mount point of the PMem, or a folder on it, below which the model files lie."""
    dimms: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of the modules behind it, as ndctl gives them; checked where ndctl can tell."""
    read_gbps: Annotated[float, Field(gt=0)] | None = None
    """Sequential read speed in GB/s, where it is known."""


@dataclass(frozen=True)
class FsdaxTier:
    """A DAX mount. `is_dax` asks the kernel about one file."""

    name: str
    options: FsdaxOptions
    env: Env
    is_dax: Callable[[Path], bool | None] = is_dax

    def probe(self) -> TierInfo:
        """Return the file system's size and the modules behind it. Raises OptanedError where it is not DAX."""
        folder = self.env.path(self.options.mount)
        if not folder.is_dir():
            raise MissingFileError(f"{self.options.mount}: no such folder; mount it or correct `mount`")
        mount = mount_of(self.env, self.options.mount)
        proof = prove(mount, self.options.mount, self.env, self.is_dax)
        try:
            room = os.statvfs(folder)
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            raise UnavailableError(f"{self.options.mount}: its file system does not answer: {cause}") from None
        region = region_of(self.env, mount.device or "")
        return TierInfo(
            name=self.name,
            driver="fsdax",
            kind=TierKind.BYTE,
            capacity_bytes=room.f_blocks * room.f_frsize,
            free_bytes=room.f_bavail * room.f_frsize,
            read_gbps=self.options.read_gbps,
            numa_node=self._node(mount, region),
            mount=folder.resolve(),
            dimms=self._dimms(region),
            notes=(proof, _about(region)),
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _dimms(self, region: Region | str) -> tuple[str, ...]:
        told = region.dimms if isinstance(region, Region) else ()
        declared = self.options.dimms
        if told and declared and set(told) != set(declared):
            raise ConfigError(
                f"dimms: {', '.join(declared)} declared, but behind it are {', '.join(told)}; correct `dimms`"
            )
        return told or declared

    def _node(self, mount: Mount, region: Region | str) -> int | None:
        if isinstance(region, Region) and region.numa_node is not None:
            return region.numa_node
        try:
            node = int(self.env.path(f"/sys/block/{mount.device}/device/numa_node").read_text())
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None


def _about(region: Region | str) -> str:
    if isinstance(region, str):
        return f"modules not known: {region}"
    behind = f"{len(region.dimms)} modules" if region.dimms else "modules not told"
    return f"{region.name}: {behind}, interleave set {region.interleave_set or 'not told'}"


@hookimpl
def optaned_tiers() -> list[Driver]:
    """Declare the tier driver `fsdax`."""
    summary = "PMem in App Direct mode on a DAX mount, read in place"
    return [Driver("fsdax", FsdaxOptions, FsdaxTier, summary, Needs(commands=("ndctl",)))]
