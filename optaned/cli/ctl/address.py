"""Where the daemon listens, who said so, and what to do when nobody answers there. Knows no HTTP."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from optaned.errors import AccessError, OptanedError, UnavailableError, UsageError
from optaned.system.paths import SYSTEM_SOCKET, socket_path


@dataclass(frozen=True)
class Address:
    """A Unix socket and what named it: `--host`, `OPTANED_HOST`, or the default."""

    path: Path
    origin: str

    def __str__(self) -> str:
        return f"{self.path} (from {self.origin})"


def find_address(host: str | None, environ: Mapping[str, str]) -> Address:
    """Return the socket: `host`, else OPTANED_HOST, else the user's own daemon if it has a socket, else the system's.

    Raises UsageError for an address that is no path.
    """
    if host:
        return Address(_path(host, "--host"), "--host")
    if environ.get("OPTANED_HOST"):
        return Address(_path(environ["OPTANED_HOST"], "OPTANED_HOST"), "OPTANED_HOST")
    own = socket_path(environ)
    if environ.get("OPTANED_RUNTIME_DIR"):
        return Address(own, "OPTANED_RUNTIME_DIR")
    if own != SYSTEM_SOCKET and _is_there(own):
        return Address(own, "a daemon that was started by hand")
    return Address(SYSTEM_SOCKET, "the default")


def explain(address: Address, error: OSError) -> OptanedError:
    """Return what a failed connection means and the next step."""
    if isinstance(error, PermissionError):
        return AccessError(f"permission denied: {address}: {_how_to_join(address.path)}")
    if isinstance(error, TimeoutError):
        return UnavailableError(f"the daemon at {address} did not answer in time; see: journalctl -u optaned")
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        what = "no such socket" if isinstance(error, FileNotFoundError) else "nobody listens"
        return UnavailableError(
            f"the daemon is not running: {address}: {what}; "
            "start it with `sudo systemctl start optaned` or `optaned serve`, or name its socket with --host"
        )
    return UnavailableError(f"cannot talk to the daemon: {address}: {error.strerror or error}")


def _is_there(own: Path) -> bool:
    """Say whether the user's own daemon has a socket. One that is hidden from us counts if the system has none."""
    try:
        return own.exists()
    except PermissionError:  # XDG_RUNTIME_DIR of somebody else, after `su` without `-`
        return not SYSTEM_SOCKET.exists()


def _path(text: str, origin: str) -> Path:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text).expanduser()
    if scheme == "unix" and rest.startswith("/"):
        return Path(rest)
    if scheme in {"http", "https"}:
        raise UsageError(
            f"{origin}: {text}: only Unix sockets can be reached; for another machine forward the socket: "
            f"ssh -L /tmp/optaned.sock:{SYSTEM_SOCKET} HOST, then {origin} unix:///tmp/optaned.sock"
        )
    raise UsageError(f"{origin}: {text}: not an address; write unix:///path/to/socket or the path alone")


def _how_to_join(path: Path) -> str:
    group = _group_of(path)
    if group is None or group.gr_gid == 0:
        return "it belongs to root alone: name a group that exists in `[server] group` of optaned.toml, or use sudo"
    if _user() in group.gr_mem and group.gr_gid not in os.getgroups():
        return f"you are in group {group.gr_name}, but not in this session: log in again"
    return f"add yourself to group {group.gr_name}: sudo usermod -aG {group.gr_name} $USER, then log in again"


def _user() -> str:
    """Return the name of the user that we are, whatever the environment says; empty for a uid without one."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def _group_of(path: Path) -> grp.struct_group | None:
    """Return the group of the socket, or of the nearest folder that can be seen when the socket itself cannot."""
    for place in (path, *path.parents):
        try:
            return grp.getgrgid(place.stat().st_gid)
        except PermissionError:
            continue
        except (OSError, KeyError):
            return None
    return None
