"""The native tap through ctypes: found, compared with the library it is to read, then used. Knows `_tap.c`'s functions.

The native code reads a tensor's fields at offsets that belong to one version of the library. So before the first use it
describes tensors that the library made, and every field must be what the library's own functions say it is.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from optaned.api import ModelIndex, RouterChoice, RouterCounts
from optaned_llamacpp.library import Library

log = logging.getLogger("optaned.llamacpp")

_I32 = 26
_P, _SIZE, _BOOL = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool
_NOT_BUILT = "the native tap was not built; install a C compiler and reinstall optaned"


class _InitParams(ctypes.Structure):
    """`ggml_init_params`: a pool of memory for tensors without data."""

    _fields_ = (("mem_size", _SIZE), ("mem_buffer", _P), ("no_alloc", _BOOL))


def open_native(library: Library) -> ctypes.CDLL | str:
    """Return the native part, or why it cannot be used."""
    found = importlib.util.find_spec("optaned_llamacpp._tap")
    if found is None or found.origin is None:
        return _NOT_BUILT
    try:
        native = _declare(ctypes.CDLL(found.origin))
        fault = _difference(native, library.raw._lib)
    except (OSError, AttributeError) as error:
        return f"the native tap cannot be used: {error}"
    return native if fault is None else f"{library.version} lays its tensors out in another way: {fault}"


class NativeTap:
    """Counts in C. `counting` is a store to memory; nothing of Python runs in the callback."""

    def __init__(self, library: Library, native: ctypes.CDLL, index: ModelIndex, *, capacity: int) -> None:
        self._native = native
        self._shape = (len(index.expert_layers), index.expert_count)
        self._capacity = capacity
        layers = 1 + index.expert_layers[-1]
        rows = (ctypes.c_int32 * layers)(*([-1] * layers))
        for row, layer in enumerate(index.expert_layers):
            rows[layer] = row
        functions = [
            _address(library.raw._lib, name) for name in ("ggml_backend_buffer_is_host", "ggml_backend_tensor_get")
        ]
        self.data: int = native.tap_new(rows, layers, *self._shape, *functions)
        if not self.data:
            raise MemoryError
        self.callback = _address(native, "tap_eval")
        self._prefill = ctypes.c_int32.from_address(native.tap_prefill_flag(self.data))
        self._tokens = (ctypes.c_uint64 * 2)()

    def counting(self, *, prefill: bool) -> None:
        """Say what the next decode call is."""
        self._prefill.value = prefill

    def on_choice(self, function: int, data: int) -> None:
        """Call a C function with every choice from now on; function 0: nobody."""
        self._native.tap_set_hook(self.data, function, data)

    def take_counts(self) -> RouterCounts:
        """Return and forget the counts; about 0.1 ms for 82,432 experts."""
        decode, prefill = np.empty(self._shape, np.uint32), np.empty(self._shape, np.uint32)
        tokens = (ctypes.c_uint64 * 2)()
        self._native.tap_take_counts(self.data, decode.ctypes.data, prefill.ctypes.data, tokens)
        return RouterCounts(decode, prefill, tokens[0], tokens[1])

    def trace(self, *, on: bool) -> None:
        """Keep each choice in a buffer of fixed size, or stop."""
        if not self._native.tap_trace(self.data, self._capacity if on else 0):
            raise MemoryError

    def take_choices(self) -> tuple[RouterChoice, ...]:
        """Return and forget what was kept; what did not fit is said in the log."""
        kept = np.empty(self._capacity, np.int32)
        dropped = ctypes.c_uint64(0)
        used = self._native.tap_take_trace(self.data, kept.ctypes.data, len(kept), ctypes.byref(dropped))
        if dropped.value:
            log.warning("trace: %d router choices came faster than they were taken, and are lost", dropped.value)
        return tuple(_choices(kept[:used].tolist()))

    def close(self) -> None:
        """Free the counts. The context that calls us must be gone."""
        data, self.data = self.data, 0
        if data:
            self._native.tap_free(data)


def _choices(numbers: Sequence[int]) -> list[RouterChoice]:
    found, at = [], 0
    while at < len(numbers):
        layer, used = numbers[at], numbers[at + 1]
        at += 2 + used
        found.append(RouterChoice(layer, tuple(numbers[at - used : at])))
    return found


def _declare(native: ctypes.CDLL) -> ctypes.CDLL:
    int32 = ctypes.c_int32
    for name, result, arguments in (
        ("tap_new", _P, (_P, int32, int32, int32, _P, _P)),
        ("tap_free", None, (_P,)),
        ("tap_prefill_flag", _P, (_P,)),
        ("tap_set_hook", None, (_P, _P, _P)),
        ("tap_describe", None, (_P, _P, _P, _P, _P, _P)),
        ("tap_take_counts", None, (_P, _P, _P, _P)),
        ("tap_trace", _BOOL, (_P, _SIZE)),
        ("tap_take_trace", _SIZE, (_P, _P, _SIZE, _P)),
    ):
        function = getattr(native, name)
        function.restype, function.argtypes = result, arguments
    return native


def _address(library: Any, name: str) -> int:
    return ctypes.cast(getattr(library, name), _P).value or 0


def _bind(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)((name, library))


def _difference(native: ctypes.CDLL, library: Any) -> str | None:
    """Return how a tensor of the library's making differs from what the native part reads in it; None: not at all."""
    new_context = _bind(library, "ggml_init", _P, _InitParams)
    new_tensor = _bind(library, "ggml_new_tensor_2d", _P, _P, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    view = _bind(library, "ggml_view_2d", _P, _P, _P, ctypes.c_int64, ctypes.c_int64, _SIZE, _SIZE)
    set_name = _bind(library, "ggml_set_name", _P, _P, ctypes.c_char_p)
    context = new_context(_InitParams(mem_size=1 << 16, no_alloc=False))
    try:
        whole = new_tensor(context, _I32, 13, 7)
        part = view(context, whole, 5, 7, 13 * 4, 0)
        set_name(whole, b"ffn_moe_argsort-3")
        set_name(part, b"ffn_moe_topk-3")
        return _compare(native, library, whole, [13, 7], 52) or _compare(native, library, part, [5, 7], 52)
    finally:
        _bind(library, "ggml_free", None, _P)(context)


def _compare(native: ctypes.CDLL, library: Any, tensor: int, shape: list[int], stride: int) -> str | None:
    kind, data = ctypes.c_int64(), ctypes.c_void_p()
    sizes, strides = (ctypes.c_int64 * 4)(), (ctypes.c_uint64 * 4)()
    name = ctypes.create_string_buffer(64)
    native.tap_describe(tensor, ctypes.byref(kind), sizes, strides, ctypes.byref(data), name)
    said_name = _bind(library, "ggml_get_name", ctypes.c_char_p, _P)(tensor)
    said_bytes = _bind(library, "ggml_nbytes", _SIZE, _P)(tensor)
    said_data = _bind(library, "ggml_get_data", _P, _P)(tensor)
    if list(sizes) != [*shape, 1, 1] or kind.value != _I32:
        return f"shape {list(sizes)} of type {kind.value}"
    if name.value != said_name:
        return f"name {name.value!r}, not {said_name!r}"
    if strides[1] != stride or (shape[1] - 1) * strides[1] + 4 * shape[0] != said_bytes:
        return f"row stride {strides[1]}"
    return None if data.value == said_data else "data pointer"
