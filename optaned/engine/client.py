"""The parent's hold on one worker: start it, talk to it, know that and why it died, leave nothing behind.

Knows processes and frames; knows no request, no state and no restart. Runs in an event loop whose thread must live as
long as the process: the kernel kills the child when the *thread* that started it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping

from optaned.engine.exits import describe_exit, oom_kill_count
from optaned.engine.frames import FrameError, encode, from_worker_buffer
from optaned.engine.messages import FromWorker, ToWorker

log = logging.getLogger("optaned.server")

# A worker that closed its socket is on its way out; one that is still there after this hangs.
_EXIT_GRACE_S = 2.0

Take = Callable[[FromWorker], None]


class _Link(asyncio.Protocol):
    """The socket: bytes become messages; `closed` is done when no more will come."""

    def __init__(self, take: Take, loop: asyncio.AbstractEventLoop) -> None:
        self._take = take
        self._buffer = from_worker_buffer()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._buffer.feed(data):
                self._take(message)
        except FrameError as error:
            log.error("a worker talks nonsense: %s", error)  # noqa: TRY400  its traceback says nothing
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the exit status says more
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, message: ToWorker) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Child:
    """One worker process. Made by `spawn`; `wait` must be awaited once, which also reaps it."""

    def __init__(self, process: subprocess.Popen[bytes], link: _Link, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = process.pid
        self._process = process
        self._link = link
        self._loop = loop
        self._oom_kills = oom_kill_count()
        self._exited: asyncio.Future[int] = loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        loop.add_reader(self._pidfd, self._reap)
        link.closed.add_done_callback(lambda _: loop.call_later(_EXIT_GRACE_S, self.kill))

    @classmethod
    async def spawn(cls, take: Take, environment: Mapping[str, str] | None = None) -> Child:
        """Start a worker in a session of its own; `take` gets its messages. Raises OSError when there is no process.

        `environment` is added to our own.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            link = _Link(take, loop)
            await loop.create_connection(lambda: link, sock=ours)
            try:
                process = _start(theirs.fileno(), environment or {})
            except OSError:
                link.close()
                raise
        return cls(process, link, loop)

    def send(self, message: ToWorker) -> None:
        """Say something; lost when the child is dead, as everything is that it knew."""
        self._link.send(message)

    def kill(self) -> None:
        """End the child, also a stopped one. Does nothing when it is dead."""
        if not self._exited.done():
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def wait(self) -> str:
        """Return how the child ended, after its last message was taken."""
        returncode = await asyncio.shield(self._exited)
        await asyncio.shield(self._link.closed)
        return describe_exit(returncode, oom_kills=oom_kill_count() - self._oom_kills)

    def _reap(self) -> None:
        """The pidfd is readable: the process is dead, so that this returns at once."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._exited.set_result(self._process.wait())


def _start(fd: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # -P: what lies in the working directory is never imported. stdout is the log too.
    module = [sys.executable, "-P", "-m", "optaned.engine.worker"]
    return subprocess.Popen(
        [*module, "--fd", str(fd), "--parent", str(os.getpid())],
        pass_fds=(fd,),
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
    )
