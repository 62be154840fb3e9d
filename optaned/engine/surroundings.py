"""What a worker's environment needs before it starts, from the frame that it will be sent. Knows homes; starts nothing."""

from __future__ import annotations

from pathlib import Path

from optaned.engine.messages import Open, Role
from optaned.errors import UnavailableError
from optaned.residency.preload import environment

_MEMINFO = "proc/meminfo"


def surroundings(wanted: Open, *, sysroot: Path = Path("/")) -> dict[str, str]:
    """Return variables for the worker: with block homes, those that keep its library from reading the files whole.

    Where those cannot be had, a model that fits into memory is loaded all the same. Raises OptanedError for a larger one.
    """
    placement = wanted.placement
    if wanted.role is not Role.ENGINE or placement is None:
        return {}
    files = [Path(name) for name, home in zip(wanted.files, placement.homes, strict=True) if home == "block"]
    if not files:
        return {}
    try:
        return environment(files)
    except UnavailableError as error:
        size_bytes, available_bytes = sum(file.stat().st_size for file in files), _available_bytes(sysroot)
        if available_bytes is None or size_bytes <= available_bytes:
            return {}
        raise UnavailableError(*(f"{files[0]}: {line}" for line in error.lines)) from error


def _available_bytes(sysroot: Path) -> int | None:
    try:
        lines = (sysroot / _MEMINFO).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
