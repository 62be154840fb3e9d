"""Watching the router: opens the native tap, or where it was not built the slow one, and says so. Knows neither's inside.

The tap is the library's evaluation callback, which a context gets when it is made and keeps. Only models with routed
experts have one, and only where the index says which layers have them.
"""

from __future__ import annotations

import logging
from typing import Protocol

import numpy as np

from optaned.api import ModelIndex, RouterChoice, RouterCounts
from optaned_llamacpp.library import Library
from optaned_llamacpp.tap_native import NativeTap, open_native
from optaned_llamacpp.tap_python import PythonTap

TRACED_NUMBERS = 4 << 20  # a prefill of 512 tokens through 92 layers with 16 experts a token is 0.85 million


class Tap(Protocol):
    """A router's watcher. `callback` and `data` are addresses for the context's parameters."""

    callback: int
    data: int

    def counting(self, *, prefill: bool) -> None:
        """Say what the next decode call is. By the model's owner."""

    def on_choice(self, function: int, data: int) -> None:
        """Call a C function with every choice from now on; function 0: nobody."""

    def take_counts(self) -> RouterCounts: ...

    def take_choices(self) -> tuple[RouterChoice, ...]: ...

    def trace(self, *, on: bool) -> None: ...

    def close(self) -> None: ...


def open_tap(library: Library, index: ModelIndex | None, log: logging.Logger) -> Tap | None:
    """Return a tap for this model, None when it has no routed experts or no index says so."""
    if index is None or not index.expert_layers:
        return None
    native = open_native(library)
    if isinstance(native, str):
        log.warning("the router is watched from Python, which costs about a fifth of the speed: %s", native)
        return PythonTap(library, index, capacity=TRACED_NUMBERS)
    return NativeTap(library, native, index, capacity=TRACED_NUMBERS)


def no_counts() -> RouterCounts:
    """Return the counts of a model whose router nobody watches."""
    nothing = np.zeros((0, 0), dtype=np.uint32)
    return RouterCounts(nothing, nothing, 0, 0)
