"""Keeps a resident budget away from the cliff where a kernel swaps what was just read. Reads /proc, decides purely.

Past the cliff a model is slower than from its disk: pages that count as resident come back one fault at a time. So less is
kept as soon as memory runs short, at once and by what is missing, and more again bit by bit when there is plenty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from optaned.units import format_bytes

# What must stay available: the page cache of what we do not hold, and whatever else starts up.
_MARGIN_SHARE, _LEAST_MARGIN_BYTES = 0.02, 64 << 20
_GROW_SHARE = 0.25
_WORTH_TELLING = 0.01


@dataclass(frozen=True, slots=True)
class Memory:
    """How memory stands, in bytes: what is available to this process and of how much, and what of it went into swap lately."""

    available_bytes: int
    total_bytes: int
    swapped_bytes: int

    @property
    def margin_bytes(self) -> int:
        """Return what shall stay available."""
        return max(int(self.total_bytes * _MARGIN_SHARE), _LEAST_MARGIN_BYTES)


@dataclass(frozen=True, slots=True)
class Step:
    """A budget to live with from now on, and why, for people."""

    budget_bytes: int
    reason: str


def next_step(budget_bytes: int, asked_bytes: int, held_bytes: int, memory: Memory) -> Step | None:
    """Return the budget after a look at memory, None when it stays. Never above what was asked for.

    `held_bytes` is what is resident of the budget now: what is not yet there must fit into what is available.
    """
    coming = max(0, budget_bytes - held_bytes)
    missing = max(memory.margin_bytes + coming - memory.available_bytes, memory.swapped_bytes)
    if missing > 0 and budget_bytes > 0:
        lower = max(0, budget_bytes - missing)
        why = "is being swapped out" if memory.swapped_bytes else "would leave too little memory"
        return Step(lower, f"{format_bytes(budget_bytes)} of resident weights {why}; {format_bytes(lower)} are kept")
    spare = memory.available_bytes - 2 * memory.margin_bytes - coming
    higher = min(asked_bytes, budget_bytes + int(spare * _GROW_SHARE))
    if higher - budget_bytes > asked_bytes * _WORTH_TELLING:
        return Step(higher, f"memory is free again; up to {format_bytes(higher)} of weights are kept resident")
    return None


def look(sysroot: Path = Path("/")) -> Memory | None:
    """Return how memory stands for this process: the machine's and the tightest control group's. None where nobody says.

    `swapped_bytes` is all that is in swap; how much of it is new only who looked before can tell.
    """
    try:
        machine = _numbers((sysroot / "proc/meminfo").read_text())
        swapped = _numbers((sysroot / "proc/self/status").read_text()).get("VmSwap", 0)
        available, total = machine["MemAvailable"], machine["MemTotal"]
    except (OSError, KeyError):
        return None
    for limit, used in _groups(sysroot):
        if limit < total:
            total = limit
        available = min(available, limit - used)
    return Memory(max(0, available), total, swapped)


def _numbers(text: str) -> dict[str, int]:
    """Return the lines that are `Name:  number kB`, in bytes."""
    fields = (line.split() for line in text.splitlines())
    return {f[0].rstrip(":"): int(f[1]) << 10 for f in fields if len(f) == 3 and f[2] == "kB" and f[1].isdigit()}


def _groups(sysroot: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, use that cannot be dropped) of each group around this process that has a limit, of both versions."""
    try:
        lines = (sysroot / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    root = sysroot / "sys/fs/cgroup"
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield from _walk(root, group, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            yield from _walk(root / "memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def _walk(root: Path, group: str, limit: str, usage: str, prefix: str) -> Iterator[tuple[int, int]]:
    """A group that this process cannot see (another namespace's) limits it all the same, but nobody can say by how much."""
    path = PurePosixPath(group)
    for part in (path, *path.parents):
        folder = root / str(part).lstrip("/")
        try:
            most = int((folder / limit).read_text())
            used = int((folder / usage).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        droppable = sum(int(stat.get(f"{prefix}{name}", 0)) for name in ("inactive_file", "active_file"))
        yield most, max(0, used - droppable)
