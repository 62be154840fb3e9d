"""The clock of what must also age while the machine sleeps, and which boot it counts from. Knows nothing else."""

from __future__ import annotations

import time
import uuid
from pathlib import Path


def boottime_s() -> float:
    """Return seconds since boot, time in suspend included (CLOCK_BOOTTIME); the same in every process."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> bytes:
    """Return the 16 bytes that name this boot of the machine."""
    return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()).bytes
