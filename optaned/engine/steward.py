"""The steward: a thread beside the model that watches the router, remembers heat, has experts moved and tells of it.

Knows when; what is worth moving and how it moves is the house's. The planned bytes are brought before the engine says that
it is open.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from optaned.engine.house import House, Progress
from optaned.engine.learning import Learning
from optaned.engine.messages import Failed, FromWorker, Move, Promotion, Residency, Text
from optaned.errors import OptanedError

log = logging.getLogger("optaned.engine")

Send = Callable[[Iterable[FromWorker]], None]

# How often it looks, and tells when something changed.
TICK_S = 1.0


@dataclass(frozen=True)
class Speed:
    """How fast pages may move now, in GB/s, and how many bytes have so far. `halt` lets nothing move any more."""

    gbps: Callable[[], float] = lambda: float("inf")
    moved_bytes: Callable[[], int] = lambda: 0
    halt: Callable[[], None] = lambda: None


class Steward:
    """Runs from `start` to `close`; `settle` comes before, `ask` may be called from any thread meanwhile."""

    def __init__(
        self,
        house: House,
        learning: Learning,
        *,
        send: Send,
        speed: Speed | None = None,
        anonymous_bytes: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        tick_s: float = TICK_S,
    ) -> None:
        """`anonymous_bytes` is what the kernel counts as copied, None where it does not say."""
        self._house = house
        self._learning = learning
        self._send = send
        self._speed = Speed() if speed is None else speed
        self._anonymous_bytes = anonymous_bytes
        self._clock = clock
        self._tick_s = tick_s
        self._asked: queue.SimpleQueue[Move | None] = queue.SimpleQueue()
        self._closing = False
        self._looked_s, self._looked_bytes = clock(), 0
        self._told: Residency | None = None
        self._thread = threading.Thread(target=self._run, name="steward", daemon=True)

    def settle(self, promotions: Sequence[Promotion], progress: Progress) -> None:
        """Bring what is planned, and tell what is where. Raises GivenUpError when `progress` returns False."""
        self._house.settle(promotions, self._learning, progress)
        self._looked_s, self._looked_bytes = self._clock(), self._speed.moved_bytes()
        self._tell(self._looked_s)

    def start(self) -> None:
        self._thread.start()

    def ask(self, move: Move) -> None:
        """Have something moved by hand; the answer is sent when it is known whether that can be done."""
        self._asked.put(move)

    def close(self) -> None:
        """Give up the move at hand, save heat, close the house. Before the model is freed."""
        self._closing = True
        self._speed.halt()
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self._learning.save(self._clock())
        self._house.close()

    def look(self) -> None:
        """Look once: learn, move what has become worth it, save, tell."""
        now_s = self._clock()
        if self._learning.learn(self._house.used, now_s):
            self._house.exchange(self._learning, self._speed.gbps() * 1e9 * self._tick_s, self._interrupted)
        self._learning.save_if_due(now_s)
        self._tell(self._clock())

    def serve(self, *, wait_s: float) -> None:
        """Answer what was asked by hand; wait for a question at most so long."""
        while not self._closing:
            try:
                move = self._asked.get(timeout=wait_s) if wait_s else self._asked.get_nowait()
            except queue.Empty:
                return
            if move is not None:
                self._obey(move)
                self._tell(self._clock())
            wait_s = 0

    def _run(self) -> None:
        try:
            while not self._closing:
                self.serve(wait_s=self._tick_s)
                self.look()
        except OSError as error:
            log.info("nobody hears the steward any more: %s", error)
        except Exception:
            # Without it the model still answers, from where its bytes are.
            log.exception("the steward failed; nothing moves any more")

    def _interrupted(self) -> bool:
        self.serve(wait_s=0)
        return self._closing

    def _obey(self, move: Move) -> None:
        try:
            order = self._house.order(move, self._learning.heat.weight)
        except OptanedError as error:
            self._send([Failed(move.id, "move_refused", str(error))])
            return
        self._send([Text(move.id, order.text)])
        self._house.obey(order, lambda: self._closing)

    def _tell(self, now_s: float) -> None:
        """Tell what has changed since it was told."""
        moved, passed_s = self._speed.moved_bytes(), now_s - self._looked_s
        gbps = (moved - self._looked_bytes) / passed_s / 1e9 if passed_s > 0 else 0.0
        self._looked_s, self._looked_bytes = now_s, moved
        moving, fault = self._learning.sentence, self._house.fault
        now = Residency(
            tiers=self._house.uses(),
            routed_bytes_total=self._house.routed_bytes,
            skew=self._learning.skew,
            moving=f"{moving}; last fault: {fault}" if fault else moving,
            smaps_bytes=self._anonymous_bytes(),
            move_gbps=round(gbps, 3),
        )
        if now != self._told:
            self._told = now
            self._send([now])
