"""The backend itself: from a load request to a model with a context, from files to a vocabulary. Knows the options.

Threads are clamped to the affinity mask, because the library's barrier waits for ever for a thread that has no
processor.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from optaned.api import ConfigError, Device, LoadRequest, Model, ModelInfo, OptanedError, UnavailableError, Vocabulary
from optaned_llamacpp import LlamaOptions
from optaned_llamacpp.library import Library, address, open_library
from optaned_llamacpp.loading import open_model
from optaned_llamacpp.model import LlamaModel
from optaned_llamacpp.tap import open_tap
from optaned_llamacpp.vocabulary import LlamaVocabulary, metadata

_CACHE_TYPES = {
    "f32": 0, "f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20,
}  # fmt: skip
_FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
_NUMA = {"off": 0, "distribute": 1, "isolate": 2, "numactl": 3}
_OUTPUT_BYTES = 64 << 20  # of logits that a decode may produce at once: they are reserved when the context is made


class LlamaBackend:
    """Opens models and vocabularies in this process."""

    def __init__(self, options: LlamaOptions, log: logging.Logger) -> None:
        self._options = options
        self._log = log
        self._library = open_library()
        if options.numa != "off":
            self._library.raw.llama_numa_init(_NUMA[options.numa])

    def vocabulary(self, files: Sequence[Path]) -> Vocabulary:
        """Open the vocabulary alone. Raises MissingFileError, ModelFileError or UnavailableError in one line."""
        library = self._library
        model = open_model(library, files, vocab_only=True)
        return LlamaVocabulary(library, model, release=lambda: library.raw.llama_model_free(model))

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs that this build of the library can use."""
        return self._library.devices.describe()

    def load(self, request: LoadRequest, progress: Callable[[float], bool]) -> Model:
        """Load a model and make room for its slots. Raises OptanedError in one line; nothing stays loaded then."""
        cache_type = _CACHE_TYPES.get(request.kv_cache.lower())
        if cache_type is None:
            known = ", ".join(_CACHE_TYPES)
            raise ConfigError(f"quantization.kv_cache: {request.kv_cache!r} is none of {known}")
        library = self._library
        model = open_model(library, request.files, progress=progress, offload=request.offload)
        try:
            return self._with_context(request, model, cache_type)
        except BaseException:
            library.raw.llama_model_free(model)
            raise

    def _with_context(self, request: LoadRequest, model: int, cache_type: int) -> Model:
        library, raw = self._library, self._library.raw
        vocabulary = LlamaVocabulary(library, model)
        threads = max(1, min(request.threads, len(os.sched_getaffinity(0))))
        pools = metadata(library, model, f"{vocabulary.info.architecture}.pooling_type") not in {"", "0"}
        outputs = request.batch if pools else _output_rows(request, vocabulary.size)
        params = raw.llama_context_default_params()
        params.n_ctx = request.context * request.slots
        params.n_seq_max = request.slots
        params.n_batch = request.batch
        params.n_ubatch = request.batch if pools else min(request.batch, self._options.ubatch)
        params.n_outputs_max = outputs
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True
        params.flash_attn_type = _FLASH_ATTENTION[self._options.flash_attention]
        params.type_k = params.type_v = cache_type
        params.no_perf = True
        # The cache lies where the plan put it, in main memory, also for layers on a device.
        params.offload_kqv = False
        tap = open_tap(library, request.index, self._log)
        if tap is not None:
            params.cb_eval = ctypes.cast(tap.callback, type(params.cb_eval))
            params.cb_eval_user_data = tap.data
        with library.log.listen() as heard:
            context = address(raw.llama_init_from_model(model, params))
        if not context:
            if tap is not None:
                tap.close()
            raise _no_context(request, list(heard))
        info = _describe(library, model, request, threads)
        return LlamaModel(
            library, model, context, vocabulary=vocabulary, info=info, outputs=outputs, files=request.files, tap=tap
        )

    def close(self) -> None:
        """Nothing of the backend outlives its models but the library, which lives as long as the process."""


def _output_rows(request: LoadRequest, vocabulary_size: int) -> int:
    """Return how many output rows one decode may ask for: every slot, and more while they are cheap (embeddings)."""
    return max(request.slots, min(request.batch, _OUTPUT_BYTES // (4 * vocabulary_size)))


def _describe(library: Library, model: int, request: LoadRequest, threads: int) -> ModelInfo:
    raw = library.raw
    buffer = ctypes.create_string_buffer(256)
    raw.llama_model_desc(model, buffer, len(buffer))
    return ModelInfo(
        description=buffer.value.decode("utf-8", errors="replace"),
        context=request.context,
        slots=request.slots,
        batch=request.batch,
        embedding_size=raw.llama_model_n_embd_out(model),
        parameters=raw.llama_model_n_params(model),
        size_bytes=raw.llama_model_size(model),
        can_cut=not (raw.llama_model_is_recurrent(model) or raw.llama_model_is_hybrid(model)),
        embeds=True,
        threads=threads,
        library=library.version,
    )


def _no_context(request: LoadRequest, lines: Sequence[str]) -> OptanedError:
    file = request.files[0]
    reason = next((line for line in lines if line), "no reason given")
    if short := [line for line in lines if "alloc" in line]:
        reason = short[0]
        wanted = f"{request.slots} slots of {request.context} tokens ({request.kv_cache})"
        return UnavailableError(f"{file}: no memory for a cache of {wanted}: {reason}; lower `context` or `slots`")
    return ConfigError(f"{file}: llama.cpp refuses this context: {reason}")
