"""What any policy is compared with on a trace: the null, least recently used, and what a clairvoyant could do.

All hold `capacity` experts of equal size and answer for the share of uses that found their expert held, from token
`after` on. None fetches an expert before it was used once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optaned.testing.traces import Trace

_NEVER = np.iinfo(np.int64).max


def null_share(trace: Trace, capacity: int) -> float:
    """Return what experts held at random answer for, which is what any choice gets from a uniform router."""
    return min(1.0, capacity / (trace.layers * trace.experts))


def lru_share(trace: Trace, capacity: int, *, after: int = 0) -> float:
    """Return what the most recently used experts answer for (the least recently used one goes)."""
    last = np.full(trace.layers * trace.experts, -1, dtype=np.int64)
    held = np.zeros(last.size, dtype=np.bool_)
    hits = uses = 0
    for token, used in enumerate(trace.flat):
        if token >= after:
            hits += int(held[used].sum())
            uses += used.size
        last[used] = token
        held = _largest(last, capacity) & (last >= 0)
    return hits / uses if uses else 0.0


def belady_share(trace: Trace, capacity: int, *, after: int = 0) -> float:
    """Return the most that can be reached on demand: keep what is used again soonest, of what is held and what just came."""
    flat = trace.flat
    coming = _next_uses(flat, trace.layers * trace.experts)
    following = np.full(trace.layers * trace.experts, _NEVER, dtype=np.int64)
    held = np.zeros(following.size, dtype=np.bool_)
    hits = uses = 0
    for token, used in enumerate(flat):
        if token >= after:
            hits += int(held[used].sum())
            uses += used.size
        following[used] = coming[token]
        held[used] = True
        held &= _largest(np.where(held, -following, -_NEVER), capacity) & (following < _NEVER)
    return hits / uses if uses else 0.0


def _next_uses(flat: NDArray[np.int64], experts: int) -> NDArray[np.int64]:
    """Return for each use the token of the next use of the same expert; _NEVER for the last."""
    following = np.full(experts, _NEVER, dtype=np.int64)
    coming = np.empty_like(flat)
    for token in range(flat.shape[0] - 1, -1, -1):
        coming[token] = following[flat[token]]
        following[flat[token]] = token
    return coming


def _largest(values: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Return which are the `count` largest values; ties are cut somewhere."""
    if count >= values.size:
        return np.ones(values.size, dtype=np.bool_)
    kept = np.zeros(values.size, dtype=np.bool_)
    if count > 0:
        kept[np.argpartition(-values, count - 1)[:count]] = True
    return kept
