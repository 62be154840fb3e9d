"""Work for a client that may leave, in a server that may stop. Knows no HTTP beyond "the client is gone"."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from optaned.server.ports import Failure

T = TypeVar("T")


class ClientLeft(Exception):  # noqa: N818  not an error: clients may leave
    """The client closed its connection before the answer was complete."""


class Exchanges:
    """All answers that are being worked on. Each ends when it is done, when its client leaves, or with all of them."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()
        self._closed: Failure | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def run(self, receive: Receive, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns; cancel it when the client leaves (ClientLeft) or the server stops (Failure)."""
        if self._closed is not None:
            work.close()
            raise self._closed.again()
        task = asyncio.ensure_future(work)
        watcher = asyncio.ensure_future(_left(receive))
        watcher.add_done_callback(lambda _: task.cancel())
        self._open.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if task in self._ended and self._closed is not None:
                raise self._closed.again() from None
            if watcher.done() and task.cancelled():
                raise ClientLeft from None
            raise
        finally:
            watcher.cancel()
            self._open.discard(task)
            self._ended.discard(task)

    def end_all(self, failure: Failure) -> None:
        """End every open answer with `failure`, and refuse all that come later."""
        self._closed = failure
        for task in self._open:
            self._ended.add(task)
            task.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
