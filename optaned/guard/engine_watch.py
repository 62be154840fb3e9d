"""The guard's own hand on the engine: it takes a pidfd over its socket and stops what still runs after a CRITICAL.

Knows one socket and processes, no temperature and no model. It believes only the configured service account, and only
for a process of that account in the caller's own cgroup: else any user could have any process stopped. It never
resumes.
"""

from __future__ import annotations

import logging
import selectors
import signal
import socket
from pathlib import Path

from optaned.domain.thermal import Level
from optaned.system.handover import ACCEPTED, refusal, take_over
from optaned.system.peers import Peer, peer_of
from optaned.system.pidfd import Pidfd, cgroup_of

log = logging.getLogger("optaned.guard.engine")

# One server has one engine; a few more so that a restart never finds the place taken.
MOST_ENGINES = 8
MOST_LINES = 8


class EngineWatch:
    """Serves the socket within the guard's selector and stops engines when told."""

    def __init__(
        self, socket_path: Path, selector: selectors.BaseSelector, *, service_uid: int, act_after_s: float = 0.1
    ) -> None:
        """Raises OSError when the socket cannot be made."""
        self._path = socket_path
        self._selector = selector
        self._service_uid = service_uid
        self._act_after_s = act_after_s
        self._act_at_s: float | None = None
        self._engines: list[Pidfd] = []
        self._lines: set[socket.socket] = set()
        self._listener = _listen(socket_path)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    # ---- stopping ----------------------------------------------------------------------------------------------------

    @property
    def act_at_s(self) -> float | None:
        """Return when `act` is due (monotonic), None while there is nothing to do."""
        return self._act_at_s if self._engines else None

    def obey(self, level: Level, *, now_s: float) -> None:
        """Hear the level of the newest word: from a CRITICAL on others have a moment to stop the engine."""
        if level < Level.CRITICAL:
            self._act_at_s = None
        elif self._act_at_s is None:
            self._act_at_s = now_s + self._act_after_s

    def act(self, *, now_s: float) -> None:
        """Stop every engine that runs although it is time; look again soon, for as long as it is CRITICAL."""
        if self._act_at_s is None or now_s < self._act_at_s:
            return
        self._act_at_s = now_s + self._act_after_s
        self._forget_dead()
        for engine in self._engines:
            stat = engine.stat
            if stat is not None and not stat.is_stopped:
                self._stop(engine)

    def _stop(self, engine: Pidfd) -> None:
        try:
            engine.send(signal.SIGSTOP)
        except PermissionError:
            log.critical("engine %d still runs and may not be stopped by us: this guard needs CAP_KILL", engine.pid)
            return
        log.warning("engine %d still ran %.1f s after CRITICAL: stopped it", engine.pid, self._act_after_s)

    def _forget_dead(self) -> None:
        for engine in [engine for engine in self._engines if not engine.is_alive]:
            engine.close()
            self._engines.remove(engine)

    # ---- taking over -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            line, _ = self._listener.accept()
        except OSError as error:
            log.warning("%s: a caller left: %s", self._path, error)
            return
        line.settimeout(0)
        if len(self._lines) >= MOST_LINES:
            line.close()
            return
        self._lines.add(line)
        self._selector.register(line, selectors.EVENT_READ, lambda: self._answer(line))

    def _answer(self, line: socket.socket) -> None:
        try:
            line.send(self._take(line))
        except OSError as error:
            log.warning("%s: a caller left: %s", self._path, error)
        self._selector.unregister(line)
        self._lines.discard(line)
        line.close()

    def _take(self, line: socket.socket) -> bytes:
        peer = peer_of(line)
        try:
            engine = Pidfd(take_over(line))
        except ValueError as error:
            return refusal(str(error))
        self._forget_dead()
        reason = self._objection(peer, engine)
        if reason is not None:
            log.warning("pid %d of %s wanted us to watch pid %d: refused: %s", peer.pid, peer.user, engine.pid, reason)
            engine.close()
            return refusal(reason)
        self._engines.append(engine)
        log.info("watching engine %d", engine.pid)
        return ACCEPTED

    def _objection(self, peer: Peer, engine: Pidfd) -> str | None:
        if peer.uid != self._service_uid:
            return f"only uid {self._service_uid} may ask, you are {peer.uid}"
        if engine.uid != peer.uid:
            return f"process {engine.pid} is not yours"
        if engine.cgroup is None or engine.cgroup != cgroup_of(peer.pid):
            return f"process {engine.pid} is not in your cgroup"
        if len(self._engines) >= MOST_ENGINES:
            return f"{MOST_ENGINES} engines are being watched already"
        return None

    def close(self) -> None:
        """Forget all engines as they are and remove the socket."""
        for owner in (self._listener, *self._lines):
            self._selector.unregister(owner)
            owner.close()
        for engine in self._engines:
            engine.close()
        self._engines.clear()
        self._path.unlink(missing_ok=True)


def _listen(path: Path) -> socket.socket:
    # Nobody else listens here: the lock on the word keeps a second guard out.
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(path))
        # Everybody may connect; who may ask is decided by what the kernel says of the caller.
        path.chmod(0o666)
        listener.listen(MOST_LINES)
    except OSError:
        listener.close()
        raise
    return listener
