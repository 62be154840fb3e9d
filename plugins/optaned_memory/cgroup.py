"""Memory limits of the control groups around this process, version 2 and version 1. Knows no NUMA node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from optaned.api import Env

_ROOT = "/sys/fs/cgroup"
# Version 1 writes "no limit" as the largest multiple of a page.
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True)
class Limit:
    """One group's limit, and what it uses that cannot be dropped (file pages can)."""

    name: str
    limit_bytes: int
    used_bytes: int


def read_limits(env: Env) -> list[Limit]:
    """Return the limits of this process's group and of every group above it."""
    try:
        lines = env.path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []  # a kernel without control groups limits nothing
    limits: list[Limit] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            limits += _walk(env.path(_ROOT), group, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            limits += _walk(env.path(_ROOT) / "memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes")
    return limits


def _walk(root: Path, group: str, limit_file: str, usage_file: str) -> list[Limit]:
    """Read the group and all above it. In a container the path may be the host's: only what is visible counts."""
    limits = []
    inside = PurePosixPath(group.lstrip("/"))
    for part in (inside, *inside.parents):
        folder = root / part
        limit = _number(folder / limit_file)
        if ".." not in part.parts and limit is not None and limit < _UNLIMITED_BYTES:
            used = _number(folder / usage_file) or 0
            limits.append(Limit(f"control group /{part}".rstrip("."), limit, max(0, used - _file_bytes(folder))))
    return limits


def _number(path: Path) -> int | None:
    """Return a file's number; None for a missing file and for "max"."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _file_bytes(folder: Path) -> int:
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.split(maxsplit=1) for line in lines if " " in line)
    # Version 1 counts its children only under the names that begin with "total_".
    return sum(int(counts.get(f"total_{key}", counts.get(key, "0"))) for key in ("active_file", "inactive_file"))
