"""Which modules stand behind a PMem device: what `ndctl list -RDN` says. Knows its JSON; runs it through `Env`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from optaned.api import Env

_ARGV = ("ndctl", "list", "-RDN")
_DEADLINE_S = 10.0


@dataclass(frozen=True)
class Region:
    """The interleave set that a device lies on. `numa_node` None: not told."""

    name: str
    dimms: tuple[str, ...]
    mode: str | None
    interleave_set: str | None
    numa_node: int | None


def region_of(env: Env, device: str) -> Region | str:
    """Return the region of a block device such as "pmem0", or in a few words why ndctl cannot tell."""
    try:
        done = env.run(_ARGV, _DEADLINE_S)
    except FileNotFoundError:
        return "ndctl is not installed"
    except OSError as error:  # TimeoutError and PermissionError are
        return f"ndctl cannot be run: {error}"
    if done.returncode:
        return f"ndctl failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    try:
        found = find_region(json.loads(done.stdout or "[]"), device)
    except (ValueError, TypeError, AttributeError):
        return "ndctl said something that is no list of regions"
    return found or f"ndctl knows no region of {device}"


def find_region(listing: Any, device: str) -> Region | None:
    """Return the region whose namespace is `device`. A list of regions, or an object that holds one, is understood."""
    for region in _objects(listing, "regions"):
        for namespace in _objects(region, "namespaces"):
            if namespace.get("blockdev") == device:
                return _region(region, namespace)
    return None


def _region(region: dict[str, Any], namespace: dict[str, Any]) -> Region:
    mappings = sorted(_objects(region, "mappings"), key=lambda m: int(m.get("position", 0)))
    return Region(
        name=str(region.get("dev", "region")),
        dimms=tuple(str(mapping["dimm"]) for mapping in mappings if "dimm" in mapping),
        mode=namespace.get("mode"),
        interleave_set=hex(int(region["iset_id"]) & (1 << 64) - 1) if "iset_id" in region else None,
        numa_node=region.get("numa_node", namespace.get("numa_node")),
    )


def _objects(listing: Any, key: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list, of an object's list under `key`, or the one object that stands for a list."""
    if isinstance(listing, dict):
        listing = listing.get(key, [listing] if key == "regions" and "namespaces" in listing else [])
    yield from listing
