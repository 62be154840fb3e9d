"""Processes by descriptor: signals that cannot hit a recycled pid, and what /proc says about them. Knows no policy."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessStat(NamedTuple):
    """State letter of /proc/PID/stat ("R", "S", "T", "Z", …) and user plus system time of all threads, in seconds."""

    state: str
    cpu_s: float

    @property
    def is_stopped(self) -> bool:
        return self.state == "T"


def process_stat(pid: int) -> ProcessStat | None:
    """Return what a process does, or None when there is no such process (any more)."""
    # Without pathlib and text decoding: this is looked at ten times a second for as long as a model is served.
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        text = os.read(fd, 1024)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    # The name in parentheses may itself contain spaces and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(fields[0].decode("ascii"), (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND)


class Pidfd:
    """One process, held by a descriptor: it stays that process however long it is dead."""

    def __init__(self, fd: int) -> None:
        """Take over an open descriptor. Closes it and raises ValueError when it is no pidfd."""
        self._fd = fd
        try:
            self.pid = _pid_of(fd)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def open(cls, pid: int) -> Pidfd:
        """Raises ProcessLookupError when there is no such process."""
        return cls(os.pidfd_open(pid))

    def duplicate(self) -> Pidfd:
        """Return another descriptor of the same process."""
        return Pidfd(os.dup(self._fd))

    def fileno(self) -> int:
        """Return the descriptor; it is readable when the process has ended."""
        return self._fd

    @property
    def is_alive(self) -> bool:
        """Say whether the process still runs (or stands still): a zombie is not alive."""
        return self._fd >= 0 and not select.select([self._fd], [], [], 0)[0]

    @property
    def stat(self) -> ProcessStat | None:
        """Return state and CPU time, None when the process has ended."""
        stat = process_stat(self.pid)
        return stat if self.is_alive else None

    @property
    def uid(self) -> int | None:
        """Return the effective uid of the process, None when it has ended."""
        uid = _effective_uid(self.pid)
        return uid if self.is_alive else None

    @property
    def cgroup(self) -> str | None:
        """Return the text of /proc/PID/cgroup, None when the process has ended."""
        text = cgroup_of(self.pid)
        return text if self.is_alive else None

    def send(self, signum: signal.Signals) -> bool:
        """Send a signal. False when the process has ended; raises PermissionError when it may not be signalled."""
        if self._fd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._fd, signum)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def cgroup_of(pid: int) -> str | None:
    """Return the text of /proc/PID/cgroup, None when there is no such process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cgroup").read_text("ascii", errors="replace")
    return None


def _effective_uid(pid: int) -> int | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text("ascii", errors="replace").splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[2])
    return None


def _pid_of(fd: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text("ascii").splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise ValueError(f"descriptor {fd} is no pidfd")
