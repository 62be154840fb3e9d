"""Sentence embeddings of one slot. Knows pooling; knows no cache and no cancelling.

A generating model has no pooling of its own: its last hidden states are averaged over all tokens, chunk by chunk, for
the library computes an output row (a whole vocabulary of logits) for each token while embeddings are on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from optaned.api import DecodeFailed, Row
from optaned_llamacpp.library import Library, address

_NO_POOLING = 0
_ON, _OFF = True, False


class Embedder:
    """Embeds token lists in a context; `chunk` is how many tokens one decode may hold."""

    def __init__(self, library: Library, context: int, *, size: int, chunk: int) -> None:
        self._library = library
        self._context = context
        self._size = size
        self._chunk = chunk

    def embed(self, slot: int, tokens: Sequence[int], decode: Callable[[Sequence[Row]], None]) -> list[float]:
        """Return the normalised embedding of `tokens`, which are evaluated in the empty `slot`. Raises DecodeFailed."""
        if not tokens:
            raise DecodeFailed("an empty text has no embedding")
        rows = [Row(token, position, slot, logits=True) for position, token in enumerate(tokens)]
        raw = self._library.raw
        raw.llama_set_embeddings(self._context, _ON)
        try:
            if raw.llama_pooling_type(self._context) == _NO_POOLING:
                pooled = self._mean(rows, decode)
            else:
                pooled = self._pooled(slot, rows, decode)
        finally:
            raw.llama_set_embeddings(self._context, _OFF)
        length = float(np.linalg.norm(pooled))
        return [float(x) for x in (pooled / length if length > 0 else pooled)]

    def _mean(self, rows: list[Row], decode: Callable[[Sequence[Row]], None]) -> npt.NDArray[np.float64]:
        total = np.zeros(self._size)
        for start in range(0, len(rows), self._chunk):
            part = rows[start : start + self._chunk]
            decode(part)
            for i in range(len(part)):
                total += self._read(self._library.embeddings_row(self._context, i))
        return total / len(rows)

    def _pooled(self, slot: int, rows: list[Row], decode: Callable[[Sequence[Row]], None]) -> npt.NDArray[np.float64]:
        # The library pools within one evaluation, so a longer text cannot be pooled at all.
        if len(rows) > self._chunk:
            raise DecodeFailed(f"this model embeds at most {self._chunk} tokens at once, not {len(rows)}")
        decode(rows)
        return self._read(address(self._library.raw.llama_get_embeddings_seq(self._context, slot))).copy()

    def _read(self, place: int | None) -> npt.NDArray[np.float64]:
        if not place:
            raise DecodeFailed("the library gave no embedding")
        memory = (ctypes.c_float * self._size).from_address(place)
        return np.ctypeslib.as_array(memory).astype(np.float64)
