"""How much memory there is: the machine's or a node's, within the control group that this process runs in.

Reads /proc and /sys under the environment's root. Knows nothing of budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from optaned.api import ConfigError, Env, UnavailableError
from optaned_memory.cgroup import read_limits

_NODES = "/sys/devices/system/node"


@dataclass(frozen=True)
class Inventory:
    """Bytes that there are and bytes that can be had without swapping; `limited_by` says who sets the total."""

    total_bytes: int
    available_bytes: int
    limited_by: str


def take_inventory(env: Env, node: int | None) -> Inventory:
    """Return the memory of NUMA node `node`, or of the machine. Raises ConfigError for a node that is not there."""
    machine = _read(env.path("/proc/meminfo"))
    found = Inventory(_need(machine, "MemTotal"), _need(machine, "MemAvailable"), "the machine's memory")
    if node is not None:
        found = _of_node(env, node, found)
    for limit in read_limits(env):
        found = Inventory(
            total_bytes=min(found.total_bytes, limit.limit_bytes),
            available_bytes=min(found.available_bytes, max(0, limit.limit_bytes - limit.used_bytes)),
            limited_by=f"the limit of {limit.name}" if limit.limit_bytes < found.total_bytes else found.limited_by,
        )
    return found


def _of_node(env: Env, node: int, machine: Inventory) -> Inventory:
    folder = env.path(_NODES)
    if not (folder / f"node{node}" / "meminfo").is_file():
        names = sorted(int(path.name[4:]) for path in folder.glob("node[0-9]*"))
        known = ", ".join(map(str, names)) or "none"
        raise ConfigError(f"numa_node: there is no NUMA node {node}; nodes of this machine: {known}")
    counts = _read(folder / f"node{node}" / "meminfo")
    # The kernel keeps no MemAvailable for a node. File pages can be dropped; shared memory is not among them.
    free = sum(counts.get(key, 0) for key in ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable"))
    return Inventory(_need(counts, "MemTotal"), min(free, machine.available_bytes), f"the memory of node {node}")


def _read(path: Path) -> dict[str, int]:
    """Return a meminfo file's counts in bytes; a node's lines begin with "Node 0"."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    counts = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            counts[key.split()[-1]] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return counts


def _need(counts: dict[str, int], key: str) -> int:
    if key not in counts:
        raise UnavailableError(f"the kernel's meminfo has no {key}; is /proc mounted?")
    return counts[key]
