"""How a child ended, in words that are true. Knows exit statuses and the kernel's count of OOM kills."""

from __future__ import annotations

import signal
from pathlib import Path

_MEANINGS = {
    signal.SIGABRT: "aborted (SIGABRT)",
    signal.SIGSEGV: "crashed (SIGSEGV)",
    signal.SIGBUS: "crashed (SIGBUS)",
    signal.SIGILL: "crashed (SIGILL)",
    signal.SIGFPE: "crashed (SIGFPE)",
}


def describe_exit(returncode: int, *, oom_kills: int = 0) -> str:
    """Return why a process ended. `oom_kills` is how many processes the kernel killed for memory meanwhile."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    number = -returncode
    try:
        meaning = _MEANINGS.get(signal.Signals(number))
    except ValueError:
        meaning = None
    if meaning is not None:
        return meaning
    if number == signal.SIGKILL and oom_kills > 0:
        return "was killed by signal 9 (the kernel ran out of memory and killed processes)"
    return f"was killed by signal {number}"


def oom_kill_count(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Return how many processes the kernel has killed for want of memory since boot; 0 where it does not say."""
    try:
        lines = vmstat.read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
