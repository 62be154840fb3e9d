"""One server-sent event stream: headers at once, pings while it is quiet, and an end that says how it ended.

Knows ASGI and bytes; what an event means is somebody else's business. A token costs one send and no timer: the ping's
timer runs once a `ping_s` and looks back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Send

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """A stream to one client. `quiet()` says, at the time of a ping, why nothing comes."""

    def __init__(self, send: Send, *, ping_s: float, quiet: Callable[[], str]) -> None:
        self._send = send
        self._ping_s = ping_s
        self._quiet = quiet
        self._loop = asyncio.get_running_loop()
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ping: asyncio.Task[None] | None = None
        self.is_open = False

    async def open(self) -> None:
        """Send the headers and begin to ping."""
        self.is_open = True
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        self._last_s = self._loop.time()
        self._timer = self._loop.call_later(self._ping_s, self._tick)

    async def send(self, events: bytes) -> None:
        """Send one or more complete events."""
        self._last_s = self._loop.time()
        await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def finish(self, events: bytes) -> None:
        """Send the last events and end the stream."""
        self.stop()
        await self._send({"type": "http.response.body", "body": events, "more_body": False})

    def stop(self) -> None:
        """Stop pinging; nothing is sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ping is not None:
            self._ping.cancel()

    def _tick(self) -> None:
        quiet_s = self._loop.time() - self._last_s
        # A timer may fire a clock tick early; a ping that still waits for a slow client is not followed by another.
        if quiet_s > self._ping_s * 0.99:
            if self._ping is None or self._ping.done():
                comment = f": {_one_line(self._quiet())}\n\n".encode()
                self._ping = self._loop.create_task(self.send(comment))
            quiet_s = 0.0
        self._timer = self._loop.call_later(self._ping_s - quiet_s, self._tick)


def _one_line(text: str) -> str:
    return " ".join(text.split())
