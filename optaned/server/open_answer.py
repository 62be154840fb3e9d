"""One answer as its route sees it: an async iterator of events. Knows no child, no HTTP and no other answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from optaned.engine.messages import Finished
from optaned.server.ports import Event, Failure


class OpenAnswer:
    """Events in order, then the end: after `Finished`, or with the `Failure` that ended it.

    `leave(id)` is called when the route goes away before the end.
    """

    def __init__(self, request_id: str, *, leave: Callable[[str], None]) -> None:
        self.id = request_id
        self._leave = leave
        self._events: deque[Event] = deque()
        self._failure: Failure | None = None
        self._over = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        """Hand over one event; dropped when the answer is over or its route has gone."""
        if self._over:
            return
        self._events.append(event)
        if isinstance(event, Finished):
            self._over = True
        self._wake()

    def fail(self, failure: Failure) -> None:
        """End with a failure, raised after the events that came before."""
        if not self._over:
            self._failure = failure
            self._over = True
            self._wake()

    def __aiter__(self) -> OpenAnswer:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._events.popleft()

    async def aclose(self) -> None:
        """Leave: an answer that has not ended is cancelled."""
        was_open, self._over = not self._over, True
        self._events.clear()
        self._failure = None
        self._wake()
        if was_open:
            self._leave(self.id)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
