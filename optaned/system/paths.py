"""Where a daemon keeps its socket, its state and the thermal word. Knows names only: nothing is created or opened here.

`OPTANED_RUNTIME_DIR` and `OPTANED_STATE_DIR` move everything (tests, demos, a second daemon). Else a service's
directories are those that systemd names, root's are under /run and /var/lib, and a user's are under the XDG ones.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

SYSTEM_SOCKET = Path("/run/optaned/optaned.sock")
SYSTEM_WORD = Path("/run/optaned-guard/thermal.word")
_WORD = "thermal.word"


def runtime_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the API socket; gone after a reboot."""
    if chosen := environ.get("OPTANED_RUNTIME_DIR"):
        return Path(chosen)
    # A user's own directory comes first for root too only where root has a login session of its own.
    if session := environ.get("XDG_RUNTIME_DIR"):
        return Path(session, "optaned")
    if os.geteuid() == 0:
        return Path("/run/optaned")
    return Path(tempfile.gettempdir(), f"optaned-{os.geteuid()}")


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of what must survive a reboot: jobs, the latch, the guard's history."""
    if chosen := environ.get("OPTANED_STATE_DIR"):
        return Path(chosen)
    # systemd joins several directories with colons; the first is the service's own.
    if service := environ.get("STATE_DIRECTORY"):
        return Path(service.split(":", 1)[0])
    if os.geteuid() == 0:
        return Path("/var/lib/optaned")
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local/state", "optaned")


def socket_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the API listens unless the configuration says otherwise."""
    if environ.get("OPTANED_RUNTIME_DIR"):
        return runtime_dir(environ) / "optaned.sock"
    return SYSTEM_SOCKET if _is_service(environ) else runtime_dir(environ) / "optaned.sock"


def guard_word_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a guard writes its word: in the directory of its unit, or beside the socket when it runs by hand."""
    if not environ.get("OPTANED_RUNTIME_DIR") and (unit := environ.get("RUNTIME_DIRECTORY")):
        return Path(unit.split(":", 1)[0], _WORD)
    return hand_word_path(environ)


def hand_word_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the guard of a server that was started by hand writes."""
    return runtime_dir(environ) / "guard" / _WORD


def word_path_to_obey(*, system_guard_lives: bool, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the word that a server and its engine go by: the system's guard, if there is one, before one of our own.

    A service always goes by the system's: where that guard is silent, it must stand still, not listen to another.
    """
    if not environ.get("OPTANED_RUNTIME_DIR") and (_is_service(environ) or system_guard_lives):
        return SYSTEM_WORD
    return hand_word_path(environ)


def engine_socket_path(word_path: Path) -> Path:
    """Return the guard's socket beside its word, on which it is handed the engine it may stop."""
    return word_path.with_name("engine.sock")


def _is_service(environ: Mapping[str, str]) -> bool:
    return "NOTIFY_SOCKET" in environ
