"""Server-sent events out of bytes that may be cut anywhere. Knows no JSON."""

from __future__ import annotations


class EventParser:
    """Feed it bytes; it gives the data of each finished event. Comments, the daemon's pings, give nothing."""

    def __init__(self) -> None:
        self._pending = b""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that `chunk` completes, lines of one event joined by newlines."""
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        events = []
        for line in lines:
            text = line.removesuffix(b"\r").decode("utf-8", "replace")
            if text:
                field, _, value = text.partition(":")
                if field == "data":
                    self._data.append(value.removeprefix(" "))
            elif self._data:
                events.append("\n".join(self._data))
                self._data = []
        return events
