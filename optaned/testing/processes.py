"""Processes for tests: a child that keeps a core busy, and what is seen of it from outside. Imports no daemon."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Nice: a busy child must not starve the tests that watch it.
_BUSY = "import os\nos.nice(19)\nwhile True: pass"
# Two ticks of the kernel's process clock: any running process is seen to run within this time on an idle core.
_WINDOW_S = 0.2


@dataclass
class Busy:
    """A child process that computes for ever."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def state(self) -> str:
        """Return the state letter of /proc: R or S while it runs, T while it is stopped, Z when it is dead."""
        return _stat(self.pid)[0]

    @property
    def cpu_ticks(self) -> int:
        return _cpu_ticks(self.pid)

    def stands_still(self) -> bool:
        """Say whether it is stopped and used no CPU time for a moment."""
        before = self.cpu_ticks
        time.sleep(_WINDOW_S)
        return self.state == "T" and self.cpu_ticks == before

    def runs(self) -> bool:
        """Say whether it used CPU time for a moment."""
        before = self.cpu_ticks
        time.sleep(_WINDOW_S)
        return self.cpu_ticks > before

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def busy_child(code: str = _BUSY) -> Iterator[Busy]:
    """Start a busy Python process, or another one; it is dead when the block ends."""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield Busy(process)
    finally:
        process.kill()
        process.wait()


def _stat(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    return text[text.rindex(")") + 2 :].split()


def _cpu_ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12])
