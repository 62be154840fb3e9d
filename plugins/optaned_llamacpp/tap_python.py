"""The tap where nothing could be compiled: the same counts through a Python callback, at a fifth of the speed.

Knows the library's own functions about tensors; relies on no layout.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import Any

import numpy as np

from optaned.api import ModelIndex, RouterChoice, RouterCounts
from optaned_llamacpp.library import Library, address

_PREFIX = b"ffn_moe_topk-"
_P, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_EVAL = ctypes.CFUNCTYPE(ctypes.c_bool, _P, ctypes.c_bool, _P)
_ON_CHOICE = ctypes.CFUNCTYPE(None, _P, _INT, _P, _INT, _INT, _SIZE, _INT)


class PythonTap:
    """Counts in Python: the library calls back about 1,400 times a token."""

    def __init__(self, library: Library, index: ModelIndex, *, capacity: int) -> None:
        self._rows = {b"%s%d" % (_PREFIX, layer): (row, layer) for row, layer in enumerate(index.expert_layers)}
        self._used = index.expert_used_count
        self._experts = index.expert_count
        shared = library.raw._lib
        self._name = ctypes.CFUNCTYPE(ctypes.c_char_p, _P)(("ggml_get_name", shared))
        self._elements = ctypes.CFUNCTYPE(ctypes.c_int64, _P)(("ggml_nelements", shared))
        self._nbytes = ctypes.CFUNCTYPE(_SIZE, _P)(("ggml_nbytes", shared))
        self._get = ctypes.CFUNCTYPE(None, _P, _P, _SIZE, _SIZE)(("ggml_backend_tensor_get", shared))
        self._keep = _EVAL(self._eval)
        self.callback, self.data = address(self._keep), 0
        self._lock = threading.Lock()
        self._counts = np.zeros((2, len(index.expert_layers), index.expert_count), np.uint32)
        self._tokens = [0, 0]
        self._prefill = 0
        self._hook: tuple[Any, int] | None = None
        self._traced: deque[RouterChoice] | None = None
        self._most_traced = capacity // (self._used + 2)

    def counting(self, *, prefill: bool) -> None:
        """Say what the next decode call is."""
        self._prefill = int(prefill)

    def on_choice(self, function: int, data: int) -> None:
        """Call a C function with every choice from now on; function 0: nobody."""
        self._hook = (_ON_CHOICE(function), data) if function else None

    def _eval(self, tensor: int, ask: bool, _data: int | None) -> bool:  # noqa: FBT001  the library's signature
        place = self._rows.get(self._name(tensor))
        if ask or place is None:
            return place is not None
        row, layer = place
        size = self._nbytes(tensor)
        tokens = self._elements(tensor) // self._used
        stride = (size - 4 * self._used) // (tokens - 1) if tokens > 1 else 4 * self._used
        ids = np.zeros(tokens * stride // 4, np.int32)
        self._get(tensor, ids.ctypes.data, 0, size)
        chosen = ids.reshape(tokens, -1)[:, : self._used]
        with self._lock:
            self._counts[self._prefill, row] += np.bincount(chosen.ravel(), minlength=self._experts).astype(np.uint32)
            self._tokens[self._prefill] += tokens if row == 0 else 0
            if self._traced is not None:
                self._traced.extend(RouterChoice(layer, tuple(one)) for one in chosen.tolist())
        if self._hook is not None:
            function, data = self._hook
            function(data, layer, ids.ctypes.data, self._used, tokens, stride, self._prefill)
        return True

    def take_counts(self) -> RouterCounts:
        """Return and forget the counts."""
        with self._lock:
            (decode, prefill), tokens = self._counts.copy(), tuple(self._tokens)
            self._counts[:] = 0
            self._tokens = [0, 0]
        return RouterCounts(decode, prefill, *tokens)

    def trace(self, *, on: bool) -> None:
        """Keep the latest choices, or stop."""
        with self._lock:
            self._traced = deque(maxlen=self._most_traced) if on else None

    def take_choices(self) -> tuple[RouterChoice, ...]:
        """Return and forget what was kept."""
        with self._lock:
            kept = tuple(self._traced or ())
            if self._traced is not None:
                self._traced.clear()
        return kept

    def close(self) -> None:
        """Nothing to free."""
