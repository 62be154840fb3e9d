"""Sockets that systemd opened for us (socket activation). Knows the protocol, not what is served on them."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

_FIRST_FD = 3
_VARIABLES = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


def take_listen_sockets(
    environ: MutableMapping[str, str] = os.environ, *, first_fd: int = _FIRST_FD
) -> dict[str, socket.socket]:
    """Return the inherited listening sockets by name ("unknown", or "unknown2", … where unnamed), once.

    They are closed in children and the variables are unset, so that no child serves on them by mistake. Empty when this
    process inherited none; raises OSError when the variables promise what is not there.
    """
    promised = {name: environ.pop(name) for name in _VARIABLES if name in environ}
    count = promised.get("LISTEN_FDS", "")
    if promised.get("LISTEN_PID") != str(os.getpid()) or not count.isdecimal():
        return {}
    names = promised.get("LISTEN_FDNAMES", "").split(":")
    taken: dict[str, socket.socket] = {}
    for offset in range(int(count)):
        fd = first_fd + offset
        os.set_inheritable(fd, False)  # noqa: FBT003  it takes no keyword
        name = names[offset] if offset < len(names) and names[offset] else "unknown"
        taken[name if name not in taken else f"{name}{offset + 1}"] = socket.socket(fileno=fd)
    return taken
