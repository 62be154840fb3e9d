"""Who listens to the router's choices. Knows no engine: it is told when to listen and when nobody does any more.

A listener that reads too slowly loses choices rather than filling the memory, and the loss is counted for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from optaned.engine.messages import Choices
from optaned.server.ports import Failure

# A step of a large model has some hundred choices; this many are minutes of them, and some 100 MB.
MAX_HELD = 1 << 18


class Tracers:
    """All open traces. `listen(on)` is called when the first begins and when the last has left."""

    def __init__(self, listen: Callable[[bool], None]) -> None:
        self._listen = listen
        self._open: set[OpenTrace] = set()

    def open(self) -> OpenTrace:
        """Begin a trace."""
        trace = OpenTrace(self._leave)
        self._open.add(trace)
        if len(self._open) == 1:
            self._listen(True)  # noqa: FBT003
        return trace

    def deliver(self, choices: Choices) -> None:
        """Hand choices to everybody."""
        for trace in self._open:
            trace.put(choices)

    def fail_all(self, failure: Failure) -> None:
        """End all traces: the engine that they listened to is gone."""
        ended, self._open = self._open, set()
        for trace in ended:
            trace.fail(failure.again())

    def _leave(self, trace: OpenTrace) -> None:
        if trace in self._open:
            self._open.discard(trace)
            if not self._open:
                self._listen(False)  # noqa: FBT003


class OpenTrace:
    """One listener's choices, as an async iterator that ends with the `Failure` that ended the engine.

    `lost` counts the choices (a layer of a token each) that came while `MAX_HELD` were waiting already.
    """

    def __init__(self, leave: Callable[[OpenTrace], None]) -> None:
        self._leave = leave
        self._held: deque[Choices] = deque()
        self._count = 0
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.lost = 0

    def put(self, choices: Choices) -> None:
        if self._count >= MAX_HELD:
            self.lost += len(choices.choices)
            return
        self._count += len(choices.choices)
        self._held.append(choices)
        self._wake()

    def fail(self, failure: Failure) -> None:
        self._failure = failure
        self._wake()

    def __aiter__(self) -> OpenTrace:
        return self

    async def __anext__(self) -> Choices:
        while not self._held:
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        choices = self._held.popleft()
        self._count -= len(choices.choices)
        return choices

    async def aclose(self) -> None:
        """Leave; the last one to do so ends the tracing."""
        self._leave(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
