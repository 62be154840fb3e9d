"""Tell systemd how a service is doing. Knows the protocol's traps; silent without NOTIFY_SOCKET.

The library encodes Latin-1 and swallows every error, and systemd drops a message that is not UTF-8: only ASCII is sent.
`WATCHDOG=1` goes alone, so that no odd status text can ever cost a heartbeat.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import sdnotify


class Notifier:
    """The service's line to systemd; every call is a no-op where there is none."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        # Constructed without the variable, the library would fail inside and leave a socket open.
        self._line: Any = sdnotify.SystemdNotifier() if environ.get("NOTIFY_SOCKET") else None
        self.watchdog_s = _watchdog_s(environ)

    @property
    def is_connected(self) -> bool:
        return self._line is not None

    def ready(self, status: str = "") -> None:
        """Say that the service serves (or is parked on purpose: say so in `status`)."""
        self._send("READY=1\nSTATUS=" + _ascii_line(status) if status else "READY=1")

    def status(self, text: str) -> None:
        """Show one line in `systemctl status`."""
        self._send("STATUS=" + _ascii_line(text))

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def extend_timeout(self, extend_s: float) -> None:
        """Ask for more time to start or stop, counted from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(extend_s * 1_000_000)}")

    def _send(self, message: str) -> None:
        if self._line is not None:
            self._line.notify(message)

    def close(self) -> None:
        if self._line is not None and self._line.socket is not None:
            self._line.socket.close()
        self._line = None


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the interval in which systemd wants a heartbeat from this process, if it wants any."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 1_000_000


def _ascii_line(text: str) -> str:
    spelled = text.replace("°", " ").replace("→", "->").replace("\n", " ")
    return " ".join(spelled.encode("ascii", errors="replace").decode("ascii").split())
