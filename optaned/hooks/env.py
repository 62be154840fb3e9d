"""The surroundings of a driver: all that it may take from the machine, in one record. Knows no driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Completed(NamedTuple):
    """Outcome of `Env.run`: exit status and decoded output."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Device:
    """A processor with memory of its own that the model library can use, by the library's name ("CUDA0")."""

    name: str
    description: str
    total_bytes: int
    free_bytes: int


def _no_devices() -> tuple[Device, ...]:
    return ()


def _no_run(argv: Sequence[str], deadline_s: float) -> Completed:  # noqa: ARG001  the signature is the contract
    raise PermissionError(f"this driver declared no command, so {argv[0]!r} may not run")


def _no_secret(name: str) -> str:
    raise KeyError(name)


@dataclass(frozen=True)
class Env:
    """All that a driver may take from its surroundings, so that hardware is a directory and tools are scripts in tests.

    `sysroot` stands before every absolute path that a driver opens ("/" on a real machine); `clock` is monotonic seconds;
    `run(argv, deadline_s)` runs a program and raises TimeoutError after killing it; `secret(name)` reads a systemd credential
    (KeyError when there is none); `devices()` asks the configured backend for its devices (raises OptanedError).
    """

    sysroot: Path = Path("/")
    clock: Callable[[], float] = time.monotonic
    state_dir: Path = Path("/var/lib/optaned")
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("optaned.driver"))
    run: Callable[[Sequence[str], float], Completed] = _no_run
    secret: Callable[[str], str] = _no_secret
    devices: Callable[[], tuple[Device, ...]] = _no_devices

    def path(self, absolute: str | Path) -> Path:
        """Return an absolute path as seen under `sysroot`."""
        return self.sysroot / str(absolute).lstrip("/")
