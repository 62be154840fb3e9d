"""Runs a program for a driver: a deadline, a plain environment, output with a limit. Knows no program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence

from optaned.hooks.drivers import Completed

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run_command(argv: Sequence[str], deadline_s: float) -> Completed:
    """Return what a program said. Raises TimeoutError after killing it, OSError where it cannot be started."""
    environment = {"PATH": os.environ.get("PATH", _PATH), "LC_ALL": "C"}
    try:
        done = subprocess.run(
            list(argv),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadline_s,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{argv[0]} did not end within {deadline_s:g} s") from None
    return Completed(done.returncode, done.stdout, done.stderr)


def runner(commands: Sequence[str]) -> Callable[[Sequence[str], float], Completed]:
    """Return `run_command` for a driver that declared these commands; another one raises PermissionError."""

    def run(argv: Sequence[str], deadline_s: float) -> Completed:
        if argv[0] not in commands:
            raise PermissionError(f"this driver did not declare the command {argv[0]!r}, so it may not run")
        return run_command(argv, deadline_s)

    return run
