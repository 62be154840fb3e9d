"""The shared library: opened once a process, its log caught, its hot functions bound with the cheapest signatures.

This is the only file that imports llama_cpp. It knows no model and no request. The binding's own function objects are
left as they are; those that run once a token are bound again here so that pointers travel as plain integers (a ctypes
pointer object costs about as much as the call itself).
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from dataclasses import dataclass
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as binding

from optaned_llamacpp.devices import Devices
from optaned_llamacpp.logs import LogSink

ABORT_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int32


@dataclass(frozen=True)
class Library:
    """The opened library. Pointers are integers; `raw` is the binding's module for everything that is not hot."""

    raw: Any
    log: LogSink
    version: str
    callbacks: tuple[Any, ...]
    devices: Devices
    decode: Any
    logits_row: Any
    embeddings_row: Any
    sample: Any
    apply: Any
    accept: Any
    chain_add: Any
    chain_remove: Any
    new_dist: Any
    free_sampler: Any
    set_abort: Any
    token_to_piece: Any
    tokenize: Any


def _bind(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)((name, binding._lib))


@functools.cache
def open_library() -> Library:
    """Return the process's one library; the log callback must live as long as it does, or the process crashes."""
    sink = LogSink(logging.getLogger("optaned.llamacpp"))
    callback = binding.llama_log_callback(lambda level, text, _data: sink.feed(level, text or b""))
    binding.llama_log_set(callback, None)
    # Else it has gdb, where there is one, write a backtrace before it aborts: seconds in which no client hears of it.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    binding.llama_backend_init()
    return Library(
        raw=binding,
        log=sink,
        version=f"llama.cpp {binding.llama_version().decode()} (llama-cpp-python {llama_cpp.__version__})",
        callbacks=(callback,),
        devices=Devices(binding._lib),
        decode=_bind("llama_decode", _INT, _POINTER, binding.llama_batch),
        logits_row=_bind("llama_get_logits_ith", _POINTER, _POINTER, _INT),
        embeddings_row=_bind("llama_get_embeddings_ith", _POINTER, _POINTER, _INT),
        sample=_bind("llama_sampler_sample", _INT, _POINTER, _POINTER, _INT),
        apply=_bind("llama_sampler_apply", None, _POINTER, _POINTER),
        accept=_bind("llama_sampler_accept", None, _POINTER, _INT),
        chain_add=_bind("llama_sampler_chain_add", None, _POINTER, _POINTER),
        chain_remove=_bind("llama_sampler_chain_remove", _POINTER, _POINTER, _INT),
        new_dist=_bind("llama_sampler_init_dist", _POINTER, ctypes.c_uint32),
        free_sampler=_bind("llama_sampler_free", None, _POINTER),
        set_abort=_bind("llama_set_abort_callback", None, _POINTER, _POINTER, _POINTER),
        token_to_piece=_bind("llama_token_to_piece", _INT, _POINTER, _INT, _POINTER, _INT, _INT, ctypes.c_bool),
        tokenize=_bind(
            "llama_tokenize", _INT, _POINTER, ctypes.c_char_p, _INT, _POINTER, _INT, ctypes.c_bool, ctypes.c_bool
        ),
    )


def address(pointer: Any) -> int:
    """Return a ctypes pointer as an integer; 0 for NULL."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
