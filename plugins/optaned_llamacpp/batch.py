"""One llama_batch, allocated once and filled again for every call. Knows rows; knows no context.

Each row belongs to one sequence, so the pointers of `seq_id` are set up once and only the numbers behind them change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from optaned.api import Row
from optaned_llamacpp.library import Library


class Batch:
    """A batch of up to `capacity` rows; `struct` goes to the library by value."""

    def __init__(self, library: Library, capacity: int) -> None:
        self.capacity = capacity
        self._token = (ctypes.c_int32 * capacity)()
        self._position = (ctypes.c_int32 * capacity)()
        self._sequence = (ctypes.c_int32 * capacity)()
        self._output = (ctypes.c_int8 * capacity)()
        self._one = (ctypes.c_int32 * capacity)(*([1] * capacity))
        one_sequence = ctypes.POINTER(ctypes.c_int32)
        size = ctypes.sizeof(ctypes.c_int32)
        at = [ctypes.cast(ctypes.byref(self._sequence, i * size), one_sequence) for i in range(capacity)]
        self._pointers = (one_sequence * capacity)(*at)
        self.struct = library.raw.llama_batch(
            n_tokens=0,
            token=self._token,
            embd=None,
            pos=self._position,
            n_seq_id=self._one,
            seq_id=self._pointers,
            logits=self._output,
        )

    def fill(self, rows: Sequence[Row]) -> list[int]:
        """Hold these rows and return the batch indices of those with an output row."""
        count = len(rows)
        self.struct.n_tokens = count
        if count == 1:  # the decode of a single answer: no temporary lists
            self._token[0], self._position[0], self._sequence[0], output = rows[0]
            self._output[0] = output
            return [0] if output else []
        tokens, positions, slots, outputs = map(list, zip(*rows, strict=True))
        self._token[:count] = tokens
        self._position[:count] = positions
        self._sequence[:count] = slots
        self._output[:count] = outputs
        return [i for i, output in enumerate(outputs) if output]
