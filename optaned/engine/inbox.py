"""What the parent says, read by a thread of its own, so that a cancel is heard in the middle of a prefill.

Knows frames and ids; knows no model. The main thread takes messages between two steps; `is_cancelled` may be asked from
anywhere at any time.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator

from optaned.engine.frames import FrameError, FrameSocket
from optaned.engine.messages import Cancel, Close, ToWorker

log = logging.getLogger("optaned.engine")


class Inbox:
    """Messages in the order in which they came. `closed` is set as soon as the parent says or does so.

    `aside(message)` is asked first, in the reading thread: what it takes (True) is not the main thread's business and
    need not wait for the end of a step.
    """

    def __init__(self, frames: FrameSocket) -> None:
        self._frames = frames
        self.aside: Callable[[ToWorker], bool] = lambda _message: False
        self._messages: queue.SimpleQueue[ToWorker | None] = queue.SimpleQueue()
        self._cancelled: set[str] = set()
        self._thread = threading.Thread(target=self._read, name="inbox", daemon=True)
        self.closed = False

    def start(self) -> None:
        self._thread.start()

    def is_cancelled(self, request_id: str) -> bool:
        """Say whether a request was cancelled and the main thread has not taken that message yet."""
        return self.closed or request_id in self._cancelled

    def take(self, *, wait: bool) -> Iterator[ToWorker]:
        """Yield what has come; with `wait` at least one message, unless the parent is gone (`closed`)."""
        if not wait and self._messages.empty():
            return
        while True:
            message = self._messages.get()
            if message is None:
                return
            if isinstance(message, Cancel):
                self._cancelled.discard(message.id)
            yield message
            if self._messages.empty():
                return

    def _read(self) -> None:
        try:
            for message in self._frames.receive():
                if isinstance(message, Cancel):
                    self._cancelled.add(message.id)
                elif isinstance(message, Close):
                    break
                if not self.aside(message):
                    self._messages.put(message)
        except (OSError, FrameError) as error:
            log.warning("the parent cannot be heard any more: %s", error)
        self.closed = True
        self._messages.put(None)
