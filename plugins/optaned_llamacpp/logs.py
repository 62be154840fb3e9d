"""What llama.cpp says, as Python log records. Knows the levels of ggml and how lines arrive; knows no model.

ggml sends text in pieces: a line may lack its newline, and a piece of level CONT continues the line before it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

# ggml's own numbers; the binding's logger still assumes an older order, in which errors were dropped. What the library
# calls information is 130 lines a load: ours to see when debugging.
LEVELS = {0: logging.DEBUG, 1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
CONTINUES = 5
_LONGEST_LINE = 4096


class LogSink:
    """Joins pieces to lines, logs them, and remembers what went wrong for whoever is listening."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._pending = ""
        self._level = logging.INFO
        self._listeners: list[deque[str]] = []
        self._recent: deque[str] = deque(maxlen=4)

    def feed(self, level: int, text: bytes) -> None:
        """Take one piece as ggml delivers it."""
        if level != CONTINUES:
            self.flush()
            self._level = LEVELS.get(level, logging.WARNING)
        self._pending += text.decode("utf-8", errors="replace")
        *lines, self._pending = self._pending.split("\n")
        for line in lines:
            self._emit(line)
        if len(self._pending) > _LONGEST_LINE:
            self.flush()

    def flush(self) -> None:
        """Log what has come without its newline."""
        line, self._pending = self._pending, ""
        self._emit(line)

    def _emit(self, line: str) -> None:
        line = line.rstrip()
        if not line:
            return
        self._logger.log(self._level, "%s", line)
        if self._level >= logging.WARNING:
            self._recent.append(line)
            for heard in self._listeners:
                heard.append(line)

    def recent(self) -> tuple[str, ...]:
        """Return the last warnings and errors, at most four, and forget them."""
        self.flush()
        lines = tuple(self._recent)
        self._recent.clear()
        return lines

    @contextmanager
    def listen(self) -> Iterator[deque[str]]:
        """Collect the warnings and errors of a call, oldest first, at most 50."""
        heard: deque[str] = deque(maxlen=50)
        self._listeners.append(heard)
        try:
            yield heard
        finally:
            self.flush()
            # By identity: `remove` compares by value, and two empty deques are equal.
            self._listeners = [other for other in self._listeners if other is not heard]
