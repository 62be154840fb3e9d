"""Ask the engine for one or several answers at once, and hear them as one sequence of events. Knows no HTTP.

One answer, the usual case, costs no task and no queue a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from optaned.domain.generation import FinishReason, Timings, Usage
from optaned.engine.messages import Finished, Generate
from optaned.server.ports import EnginePort, Event, Failure

Numbered = tuple[int, Event]


@asynccontextmanager
async def answers(engine: EnginePort, requests: Sequence[Generate]) -> AsyncIterator[AsyncIterator[Numbered]]:
    """Start all requests and give their events, each with its request's number. Leaving cancels what still runs.

    Raises Failure at once when one of them cannot be started; then none is.
    """
    started: list[AsyncIterator[Event]] = []
    try:
        for request in requests:
            started.append(engine.submit(request))  # noqa: PERF401  what was started before a Failure must be known
        merged = _single(started[0]) if len(started) == 1 else _interleaved(started)
        try:
            yield merged
        finally:
            await merged.aclose()
    finally:
        for events in started:
            await _close(events)


async def _close(events: AsyncIterator[Event]) -> None:
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


async def _single(events: AsyncIterator[Event]) -> AsyncGenerator[Numbered, None]:
    async for event in events:
        yield 0, event


async def _interleaved(started: Sequence[AsyncIterator[Event]]) -> AsyncGenerator[Numbered, None]:
    queue: asyncio.Queue[Numbered | BaseException | None] = asyncio.Queue()

    async def forward(number: int, events: AsyncIterator[Event]) -> None:
        async for event in events:
            queue.put_nowait((number, event))

    def end(task: asyncio.Task[None]) -> None:
        queue.put_nowait(None if task.cancelled() else task.exception())

    tasks = [asyncio.ensure_future(forward(number, events)) for number, events in enumerate(started)]
    for task in tasks:
        task.add_done_callback(end)
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Totals:
    """What all answers to one request took together. Prompts are counted once, however many choices each has."""

    def __init__(self, choices: int) -> None:
        self._choices = choices
        self._finished: dict[int, Finished] = {}
        self.reasoning_tokens = 0

    def add(self, number: int, finished: Finished) -> None:
        """Count one answer. Raises Failure when it was cut off by somebody else than its client."""
        if finished.reason is FinishReason.CANCELLED:
            raise Failure("cancelled", "the answer was cancelled")
        self._finished[number] = finished

    @property
    def usage(self) -> Usage:
        first = [f.usage for number, f in self._finished.items() if number % self._choices == 0]
        return Usage(
            prompt_tokens=sum(u.prompt_tokens for u in first),
            completion_tokens=sum(f.usage.completion_tokens for f in self._finished.values()),
            cached_tokens=sum(u.cached_tokens for u in first),
        )

    @property
    def timings(self) -> Timings:
        """Return the longest times of all answers: they ran side by side."""
        all_timings = [f.timings for f in self._finished.values()]
        return Timings(
            queued_s=max(t.queued_s for t in all_timings),
            prefill_s=max(t.prefill_s for t in all_timings),
            decode_s=max(t.decode_s for t in all_timings),
        )
