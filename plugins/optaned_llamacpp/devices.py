"""The library's devices, and how a model's tensors are placed on one of them while it loads.

Knows the few functions of ggml that list devices (the binding has none of them) and the load parameters that they fill.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from optaned.api import ConfigError, Device, Offload, UnavailableError

# ggml_backend_dev_type: a discrete and an integrated GPU. The others are processors and their helpers.
_GPU_TYPES = (1, 2)
# Single experts are moved between tiers of main memory, on a device only whole layers could lie.
_EXPERTS = r"_exps\."


class _Override(ctypes.Structure):
    """struct llama_model_tensor_buft_override"""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


class Devices:
    """What ggml finds. `ggml` is the opened library, or anything that has its functions."""

    def __init__(self, ggml: Any) -> None:
        pointer = ctypes.c_void_p
        self._count = _function(ggml, "ggml_backend_dev_count", ctypes.c_size_t)
        self._get = _function(ggml, "ggml_backend_dev_get", pointer, ctypes.c_size_t)
        self._type = _function(ggml, "ggml_backend_dev_type", ctypes.c_int, pointer)
        self._name = _function(ggml, "ggml_backend_dev_name", ctypes.c_char_p, pointer)
        self._description = _function(ggml, "ggml_backend_dev_description", ctypes.c_char_p, pointer)
        self._memory = _function(ggml, "ggml_backend_dev_memory", None, pointer, pointer, pointer)
        self._cpu_buffers = _function(ggml, "ggml_backend_cpu_buffer_type", pointer)

    def found(self) -> dict[str, int]:
        """Return the address of each GPU by its name."""
        addresses = [self._get(number) for number in range(self._count())]
        return {self._name(each).decode(): each for each in addresses if self._type(each) in _GPU_TYPES}

    def describe(self) -> tuple[Device, ...]:
        """Return every GPU and its memory."""
        return tuple(self._describe(name, address) for name, address in self.found().items())

    def _describe(self, name: str, address: int) -> Device:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._memory(address, ctypes.addressof(free), ctypes.addressof(total))
        return Device(name, self._description(address).decode("utf-8", "replace"), total.value, free.value)

    def place(self, params: Any, offload: Sequence[Offload]) -> tuple[Any, ...]:
        """Fill a model's load parameters; return what has to live as long as they do.

        Without an offload everything stays in main memory, whatever devices there are: the plan says so. Raises ConfigError
        for several devices, UnavailableError for one that is not there.
        """
        if not offload:
            params.n_gpu_layers = 0
            return ()
        if len(offload) > 1:
            raise ConfigError(
                "placement.promote_to: a model can be placed on one device; name one tier of driver device"
            )
        wanted = offload[0]
        found = self.found()
        if wanted.device not in found:
            raise UnavailableError(
                f"the model library has no device {wanted.device!r}; here: {', '.join(found) or 'none'}"
            )
        devices = (ctypes.c_void_p * 2)(found[wanted.device], None)
        kept = [re.compile(pattern).pattern.encode() for pattern in (_EXPERTS, *wanted.keep)]
        overrides = (_Override * (len(kept) + 1))(*(_Override(pattern, self._cpu_buffers()) for pattern in kept))
        params.devices = ctypes.addressof(devices)
        params.tensor_buft_overrides = ctypes.addressof(overrides)
        # The output counts as one layer more, and goes first.
        params.n_gpu_layers = -1 if wanted.layers is None else wanted.layers + 1
        return devices, overrides


def _function(ggml: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of the library with its types; of a made-up one, its method."""
    if isinstance(ggml, ctypes.CDLL):
        return ctypes.CFUNCTYPE(result, *arguments)((name, ggml))
    return getattr(ggml, name)
