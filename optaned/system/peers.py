"""Who is at the other end of a Unix socket, as the kernel says. Knows no route and no permission rule."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import struct
from dataclasses import dataclass

_UCRED = struct.Struct("=iII")
# Since Linux 4.13; Python has no name for it. The groups the peer had when it connected, so no race with its pid.
_SO_PEERGROUPS = 59
# The most that Python's getsockopt takes: 256 groups.
_GROUPS_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected, with the rights it had then. `groups` includes `gid`."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()

    @property
    def user(self) -> str:
        """Return the account's name, or the number where it has none."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    def is_in(self, group: str) -> bool:
        """Say whether the peer is a member of a group; False where there is no such group."""
        try:
            return grp.getgrnam(group).gr_gid in self.groups
        except KeyError:
            return False


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer of a connected AF_UNIX socket. Raises OSError for any other socket."""
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid, gid, frozenset((gid, *_peer_groups(connection, uid, gid))))


def _peer_groups(connection: socket.socket, uid: int, gid: int) -> tuple[int, ...]:
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        return _groups_in_database(uid, gid)
    return struct.unpack(f"={len(raw) // 4}I", raw)


def _groups_in_database(uid: int, gid: int) -> tuple[int, ...]:
    try:
        return tuple(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid))
    except KeyError:
        return ()


def group_id(name: str) -> int | None:
    """Return a group's number, None where there is no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
