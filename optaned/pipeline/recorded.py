"""Tiers of another machine, from what `optaned probe --json` printed there: a plan can be made on a laptop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from optaned.domain.model import ModelIndex
from optaned.domain.tiers import TierInfo, TierKind
from optaned.errors import ConfigError, MissingFileError


def read_probe(file: Path) -> tuple[TierInfo, ...]:
    """Return the recorded tiers. Raises MissingFileError, or ConfigError for a file that is no probe."""
    try:
        told = json.loads(file.read_text())
        return tuple(_tier(entry) for entry in told["tiers"])
    except OSError as error:
        raise MissingFileError(
            f"{file}: {(error.strerror or str(error)).lower()}; record one: optaned probe --json"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"{file}: is no recorded probe ({what}); record one: optaned probe --json > FILE") from None


def _tier(entry: Mapping[str, Any]) -> TierInfo:
    mount, gbps, node = entry["mount"], entry["read_gbps"], entry["numa_node"]
    return TierInfo(
        name=str(entry["name"]),
        driver=str(entry["driver"]),
        kind=TierKind(entry["kind"]),
        capacity_bytes=int(entry["capacity_bytes"]),
        free_bytes=int(entry["free_bytes"]),
        read_gbps=None if gbps is None else float(gbps),
        numa_node=None if node is None else int(node),
        mount=None if mount is None else Path(mount),
        dimms=tuple(map(str, entry.get("dimms", ()))),
    )


def as_declared(index: ModelIndex, patterns: tuple[Path, ...]) -> ModelIndex:
    """Return an index whose shards lie where the configuration names them, by their file names.

    A shard that no pattern names stays where it is.
    """
    shards = []
    for shard in index.shards:
        place = next((p for p in patterns if fnmatch(shard.path.name, p.name)), None)
        shards.append(shard if place is None else replace(shard, real_path=place.parent / shard.path.name))
    return replace(index, shards=tuple(shards))
