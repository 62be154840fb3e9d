"""Our place in the file system: a Unix socket that is ours alone, or those that systemd hands us. Knows no HTTP."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from optaned.errors import AccessError, BusyError, ConfigError, MissingFileError, OptanedError
from optaned.system.peers import group_id, peer_of

_BACKLOG = 512
_DIAL_TIMEOUT_S = 2.0
# What the kernel has room for, its final zero not counted.
_LONGEST_PATH = 107


@dataclass
class Listener:
    """Sockets to accept on. `close` removes the file only if it is still the one that we made."""

    sockets: list[socket.socket]
    path: Path | None = None
    _inode: tuple[int, int] | None = None
    _lock_fd: int | None = field(default=None, repr=False)

    def close(self) -> None:
        """Remove our socket file, close the sockets and give the place free. Calling it again does nothing."""
        if self.path is not None and self._inode is not None and _inode(self.path) == self._inode:
            self.path.unlink()
        self._inode = None
        for sock in self.sockets:
            sock.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def adopt(sockets: Sequence[socket.socket]) -> Listener:
    """Return a listener on inherited sockets: they are not ours to bind, to chmod or to remove."""
    for sock in sockets:
        sock.settimeout(0)
    return Listener(list(sockets))


def bind(path: Path, *, mode: int = 0o660, group: str | None = None, log: logging.Logger | None = None) -> Listener:
    """Return a listener on a fresh socket at `path`; a stale one is replaced, at every moment with the right mode.

    Raises BusyError with the pid of a live owner, ConfigError for a place that cannot be used, AccessError and
    MissingFileError for a folder that cannot be written or is not there.
    """
    log = log or logging.getLogger("optaned.server.bind")
    with _as_one_line(path):
        _check_folder(path)
        lock_fd = _lock(path)
        try:
            _check_place(path)
            sock, inode = _bind(path, mode, _gid(group, log))
        except BaseException:
            os.close(lock_fd)
            raise
    return Listener([sock], path, inode, lock_fd)


def _gid(group: str | None, log: logging.Logger) -> int | None:
    gid = None if group is None else group_id(group)
    if group is not None and gid is None:
        log.warning(
            "there is no group %s: only this user can reach the socket; create it with: groupadd %s", group, group
        )
    return gid


def _check_folder(path: Path) -> None:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ConfigError(f"{path}: the path of a socket has at most {_LONGEST_PATH} bytes; choose a shorter one")
    mode = path.parent.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ConfigError(f"{path.parent}: anybody may replace files here; choose another folder for the socket")


def _lock(path: Path) -> int:
    # Held as long as we live. The file stays: removing a lock file lets two owners lock two files of one name.
    fd = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise _busy(path, owner or "?") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd


def _busy(path: Path, pid: int | str) -> BusyError:
    return BusyError(f"{path}: process {pid} serves here already; stop it, or choose another socket")


def _check_place(path: Path) -> None:
    """Raise unless the place is free or held by a dead socket. The lock does not see servers of another kind."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path}: is there and is no socket; it was not touched; remove it or choose another place")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_DIAL_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return
        except (TimeoutError, BlockingIOError):
            raise _busy(path, "?") from None
        raise _busy(path, peer_of(probe).pid)


def _bind(path: Path, mode: int, gid: int | None) -> tuple[socket.socket, tuple[int, int]]:
    temporary = path.with_name(f".{os.getpid()}~")
    temporary.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The new file takes the socket's own mode: there is no moment at which others could connect.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(str(temporary))
        if gid is not None:
            os.chown(temporary, -1, gid)
        temporary.chmod(mode)
        sock.listen(_BACKLOG)
        sock.settimeout(0)
        temporary.rename(path)
    except BaseException:
        sock.close()
        temporary.unlink(missing_ok=True)
        raise
    inode = _inode(path)
    assert inode is not None
    return sock, inode


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _as_one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except OptanedError:
        raise
    except FileNotFoundError:
        raise MissingFileError(f"{path.parent}: no such folder; create it, or choose another socket") from None
    except PermissionError as error:
        raise AccessError(f"{path}: {error.strerror}; run as the user who owns {path.parent}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: cannot make a socket here: {reason}; choose another place") from None
