"""How many threads compute: never more than this process may run on, one a core where two would share it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_TOPOLOGY = "sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"


def affinity() -> frozenset[int]:
    """Return the numbers of the CPUs that this process may run on."""
    return frozenset(os.sched_getaffinity(0))


def threads_for(setting: int | str, allowed: Collection[int], *, sysroot: Path = Path("/")) -> int:
    """Return the number of threads for a setting: a number, or "auto" for one a physical core among `allowed`.

    A number larger than the affinity mask is clamped to it: more threads than CPUs wait for each other at every layer.
    """
    if isinstance(setting, int):
        return max(1, min(setting, len(allowed)))
    cores = {_siblings(sysroot, cpu) for cpu in allowed}
    return max(1, len(cores))


def _siblings(sysroot: Path, cpu: int) -> str:
    """Return a name for the core of a CPU; without a topology (containers hide it) every CPU is a core."""
    try:
        return (sysroot / _TOPOLOGY.format(cpu=cpu)).read_text().strip()
    except OSError:
        return str(cpu)
