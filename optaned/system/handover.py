"""Hand a process over a Unix socket: one message, one pidfd, one answer. Knows the protocol of both ends, no policy.

A descriptor, never a bare number: a number could be recycled, or belong to somebody else from the start.
"""

from __future__ import annotations

import array
import os
import socket
from pathlib import Path

from optaned.errors import AccessError
from optaned.system.pidfd import Pidfd

HELLO = b"watch"
ACCEPTED = b"ok"
_REFUSED = b"refused: "
_ANSWER_BYTES = 512


def hand_over(socket_path: Path, engine: Pidfd, *, deadline_s: float = 1.0) -> None:
    """Ask the guard that listens there to watch a process.

    Raises AccessError with the guard's reason when it refuses, OSError when nobody answers in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.settimeout(deadline_s)
        line.connect(str(socket_path))
        line.sendmsg([HELLO], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [engine.fileno()]))])
        answer = line.recv(_ANSWER_BYTES)
    if answer != ACCEPTED:
        reason = answer.removeprefix(_REFUSED).decode(errors="replace") or "it hung up"
        raise AccessError(f"{socket_path}: the guard does not watch the engine: {reason}")


def take_over(line: socket.socket) -> int:
    """Return the one descriptor that a message on this connection brought; ValueError when it brought none."""
    message, fds, flags, _ = socket.recv_fds(line, len(HELLO) + 1, 4, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    if message == HELLO and len(fds) == 1 and not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        return fds[0]
    for fd in fds:
        os.close(fd)
    raise ValueError("a message has to be the hello with one pidfd")


def refusal(reason: str) -> bytes:
    """Return the answer that says no, and why."""
    return (_REFUSED + reason.encode())[:_ANSWER_BYTES]
