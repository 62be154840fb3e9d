"""Holds moves back: a ceiling in GB/s, the duty of the thermal word, and decoding, which loses at most a tenth.

The acting side of `budget`: has a clock, waits, counts. The engine says when steps begin and end; movers ask before each
batch and say while they move. Knows no page.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from optaned.residency.budget import Bucket, Governor

# Without a ceiling: more than any memory moves.
_UNLIMITED_BPS = 1e15
# What one thread copies, until it is known.
_FIRST_GUESS_BPS = 1e9
# What may move at once after a pause: at 2 GB/s 8 ms, and as long beside a step.
_BURST_BYTES = 16 << 20
_BURST_S = 0.008
# Steps follow each other with sampling and sending in between; only after this is the engine idle.
_LINGER_S = 0.25
# How often a stopped mover looks at the duty again. A close or a step's end wakes it before.
_LOOK_AGAIN_S = 0.2
# Waking costs more than what a shorter wait would win.
_SHORTEST_S = 0.0001


class Waiting(Protocol):
    """A condition variable, as much of it as is used here; tests bring one whose time is theirs."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def notify_all(self) -> None: ...


class Pace:
    """Gives leave to move. Methods may be called from any thread; `begin_step` and `end_step` cost about 2 µs."""

    def __init__(
        self,
        ceiling_gbps: float | None = None,
        duty: Callable[[], float] = lambda: 1.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        changed: Waiting | None = None,
    ) -> None:
        """`duty` returns the share of time in which the engine may run; at 0 nothing moves."""
        self._ceiling_bps = _UNLIMITED_BPS if ceiling_gbps is None else ceiling_gbps * 1e9
        self._duty = duty
        self._clock = clock
        self._changed = changed or threading.Condition()
        self._governor = Governor()
        self._bytes = Bucket(_BURST_BYTES, clock())
        self._seconds = Bucket(_BURST_S, clock())
        self._rows: int | None = None
        self._step_began_s = 0.0
        self._step_ended_s = -_LINGER_S
        self._moving_at_begin_s = 0.0
        self._movers = 0
        self._moving_s = 0.0
        self._moving_since_s = 0.0
        self._moved_bytes = 0
        self._closed = False

    # ---- said by the engine ------------------------------------------------------------------------------------------

    def begin_step(self, rows: int) -> None:
        """The model begins to evaluate so many rows."""
        with self._changed:
            self._rows, self._step_began_s = rows, self._clock()
            self._moving_at_begin_s = self._moved_for_s(self._step_began_s)

    def end_step(self) -> None:
        """It has evaluated them."""
        with self._changed:
            if self._rows is None:
                return
            now_s = self._clock()
            moving_s = self._moved_for_s(now_s) - self._moving_at_begin_s
            self._governor.observe(now_s - self._step_began_s, moving_s, self._rows)
            self._rows, self._step_ended_s = None, now_s
            self._changed.notify_all()

    # ---- asked by movers ---------------------------------------------------------------------------------------------

    def wait(self, size_bytes: int) -> bool:
        """Return when `size_bytes` may move; False when closed meanwhile."""
        with self._changed:
            while not self._closed:
                pause_s = self._pause_s()
                if pause_s <= 0:
                    self._bytes = self._bytes.without(size_bytes)
                    self._moved_bytes += size_bytes
                    return True
                self._changed.wait(min(max(pause_s, _SHORTEST_S), _LOOK_AGAIN_S))
        return False

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Within the block pages move: its time is paid for, and set against the steps that it accompanied."""
        with self._changed:
            began_s = self._clock()
            if self._movers == 0:
                self._moving_since_s = began_s
            self._movers += 1
        try:
            yield
        finally:
            with self._changed:
                now_s = self._clock()
                self._movers -= 1
                if self._movers == 0:
                    self._moving_s += now_s - self._moving_since_s
                self._seconds = self._seconds.without(now_s - began_s)

    def close(self) -> None:
        """Let nothing move any more, and wake who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def moved_bytes(self) -> int:
        """Return for how many bytes leave was given so far."""
        with self._changed:
            return self._moved_bytes

    @property
    def rate_gbps(self) -> float:
        """Return how fast pages may move now: the ceiling under the duty, less what decoding needs."""
        duty = min(1.0, self._duty())
        with self._changed:
            now_s = self._clock()
            moving_s = self._moved_for_s(now_s)
            full_bps = self._moved_bytes / moving_s if moving_s > 0 else _FIRST_GUESS_BPS
            return min(self._ceiling_bps * duty, full_bps * self._share(now_s) if duty > 0 else 0.0) / 1e9

    @property
    def share(self) -> float:
        """Return the share of time in which pages may move now: 1 while the engine is idle."""
        with self._changed:
            return self._share(self._clock())

    @property
    def slowdown(self) -> float:
        """Return the share of its speed that decoding was seen to lose while pages move."""
        with self._changed:
            return self._governor.slowdown

    # ---- under the lock ----------------------------------------------------------------------------------------------

    def _pause_s(self) -> float:
        """Return how long to wait before a move: at most until something may have changed."""
        duty = self._duty()
        if duty <= 0:
            return _LOOK_AGAIN_S
        now_s = self._clock()
        if self._rows is not None and self._governor.rests:
            return _LOOK_AGAIN_S
        share, bytes_a_second = self._share(now_s), self._ceiling_bps * min(1.0, duty)
        self._bytes = self._bytes.refilled(bytes_a_second, _BURST_BYTES, now_s)
        self._seconds = self._seconds.refilled(share, _BURST_S, now_s)
        if share >= 1.0:
            self._seconds = Bucket(_BURST_S, now_s)
        return max(self._bytes.wait_s(bytes_a_second), self._seconds.wait_s(share))

    def _share(self, now_s: float) -> float:
        decoding = self._rows is not None or now_s - self._step_ended_s < _LINGER_S
        return self._governor.share if decoding else 1.0

    def _moved_for_s(self, now_s: float) -> float:
        return self._moving_s + (now_s - self._moving_since_s if self._movers else 0.0)
