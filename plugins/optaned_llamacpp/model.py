"""A loaded model with its slots: evaluate rows, forget tails, hand out samplers. Knows the context; knows no request.

All slots share one unified cache, so that rows of any set of slots are one graph evaluation; with a cache per slot the
library splits a batch wherever slot numbers are not consecutive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from optaned.api import (
    DecodeAborted,
    DecodeFailed,
    ModelInfo,
    RouterChoice,
    RouterCounts,
    Row,
    Sampler,
    Sampling,
)
from optaned_llamacpp.batch import Batch
from optaned_llamacpp.candidates import Candidates, Outputs
from optaned_llamacpp.chain import Setting
from optaned_llamacpp.embedding import Embedder
from optaned_llamacpp.grammar import open_grammar
from optaned_llamacpp.library import ABORT_CALLBACK, Library, address
from optaned_llamacpp.sampling import LlamaSampler, open_chooser
from optaned_llamacpp.tap import Tap, no_counts
from optaned_llamacpp.vocabulary import LlamaVocabulary

_NO_ROOM, _ABORTED = 1, 2


class LlamaModel:
    """Model, context and slots. One thread owns it."""

    def __init__(
        self,
        library: Library,
        model: int,
        context: int,
        *,
        vocabulary: LlamaVocabulary,
        info: ModelInfo,
        outputs: int,
        files: tuple[Path, ...] = (),
        tap: Tap | None = None,
    ) -> None:
        self._library = library
        self._model = model
        self._context = context
        self.vocabulary = vocabulary
        self.info = info
        self.mapped_files = files
        self._tap = tap
        self._max_outputs = outputs
        self._memory = address(library.raw.llama_get_memory(context))
        self._window: int = library.raw.llama_model_n_swa(model)
        self._batch = Batch(library, info.batch)
        self._outputs = Outputs(library, context, vocabulary.size)
        self._candidates = Candidates(library, vocabulary.size)
        self._abort = _Abort(library, context)
        library.log.recent()  # what was said while loading explains no failure of ours
        self._setting = Setting(vocabulary.address, vocabulary.size, info.context, vocabulary.suppressed)

    def decode(self, rows: Sequence[Row], *, should_abort: Callable[[], bool] | None = None) -> None:
        """Evaluate all rows in one graph. Raises DecodeAborted or DecodeFailed, which names the library's reason."""
        if not rows:
            return
        if len(rows) > self._batch.capacity:
            raise DecodeFailed(f"{len(rows)} rows do not fit a batch of {self._batch.capacity}")
        for row in rows:
            if row.slot >= self.info.slots:  # the library would take it: a unified cache has room for 256 sequences
                raise DecodeFailed(f"slot {row.slot} of {self.info.slots} slots does not exist")
        wanted = self._batch.fill(rows)
        if len(wanted) > self._max_outputs:
            raise DecodeFailed(f"{len(wanted)} output rows asked for; a batch gives at most {self._max_outputs}")
        if self._tap is not None:
            # Prefill and decode rows never share a call: what may be aborted, or has more rows than slots, is prefill.
            self._tap.counting(prefill=should_abort is not None or len(rows) > self.info.slots)
        if should_abort is None:
            status = self._library.decode(self._context, self._batch.struct)
        else:
            with self._abort.watch(should_abort):
                status = self._library.decode(self._context, self._batch.struct)
        if status:
            self._fail(status)
        self._outputs.replace(wanted)

    def _fail(self, status: int) -> None:
        self._outputs.replace([])
        said = "; ".join(self._library.log.recent())
        if status == _ABORTED:
            raise DecodeAborted
        reason = "no free cache cells" if status == _NO_ROOM else said
        raise DecodeFailed(f"llama_decode returned {status}: {reason or 'no reason given'}")

    def sampler(self, sampling: Sampling, history: Sequence[int], *, answered: int = 0) -> Sampler:
        """Return a fresh chain. The last `answered` tokens of `history` are the answer so far: a grammar follows those.

        Raises GrammarError when the grammar does not compile or does not fit the answer so far.
        """
        grammar = None
        if sampling.grammar is not None:
            grammar = open_grammar(self._library, self.vocabulary.address, sampling.grammar)
        chooser, remembers = open_chooser(self._library, self._setting, sampling, self._outputs, self._candidates)
        sampler = LlamaSampler(
            chooser,
            self._outputs,
            self._candidates,
            seed=sampling.seed,
            end=self.vocabulary.end,
            grammar=grammar,
        )
        if remembers or grammar is not None:
            sampler.prime(history, answered)
        return sampler

    def cut(self, slot: int, length: int) -> bool:
        """Forget `slot` from position `length` on. False, with nothing forgotten, where the model cannot."""
        raw = self._library.raw
        if not self._memory:
            return True
        if length <= 0:
            return bool(raw.llama_memory_seq_rm(self._memory, slot, -1, -1))
        if length > raw.llama_memory_seq_pos_max(self._memory, slot):
            return True
        if not self.info.can_cut or not self._keeps_window(slot, length):
            return False
        return bool(raw.llama_memory_seq_rm(self._memory, slot, length, -1))

    def _keeps_window(self, slot: int, length: int) -> bool:
        """Say whether the positions that a sliding window before `length` looks at are still there."""
        if self._window <= 0:
            return True
        first: int = self._library.raw.llama_memory_seq_pos_min(self._memory, slot)
        return first <= max(0, length - self._window)

    def embed(self, slot: int, tokens: Sequence[int], *, should_abort: Callable[[], bool] | None = None) -> list[float]:
        """Return the L2-normalised embedding: the model's own pooling, else the mean. Uses and empties `slot`."""
        embedder = Embedder(
            self._library,
            self._context,
            size=self.info.embedding_size,
            chunk=min(self._batch.capacity, self._max_outputs),
        )
        self.cut(slot, 0)
        try:
            return embedder.embed(slot, tokens, lambda rows: self.decode(rows, should_abort=should_abort))
        finally:
            self._outputs.replace([])
            self.cut(slot, 0)

    def take_counts(self) -> RouterCounts:
        """Return and forget how often each expert was chosen; of shape (0, 0) where no router is watched."""
        return no_counts() if self._tap is None else self._tap.take_counts()

    def take_choices(self) -> tuple[RouterChoice, ...]:
        """Return and forget the router's choices since the last call."""
        return () if self._tap is None else self._tap.take_choices()

    def trace(self, *, on: bool) -> None:
        """Keep each choice for `take_choices`, or stop keeping them."""
        if self._tap is not None:
            self._tap.trace(on=on)

    def on_choice(self, function: int, data: int) -> bool:
        """Call a C function with each choice before its experts are read; False where no router is watched."""
        if self._tap is None:
            return False
        self._tap.on_choice(function, data)
        return True

    def close(self) -> None:
        """Free context and model; closing twice is nothing. Samplers must be closed before."""
        context, self._context = self._context, 0
        model, self._model = self._model, 0
        if context:
            self._library.raw.llama_free(context)
        if model:
            self._library.raw.llama_model_free(model)
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.close()


class _Abort:
    """The abort callback of a context. It is set only while somebody may abort: it costs a Python call a graph node."""

    def __init__(self, library: Library, context: int) -> None:
        self._library = library
        self._context = context
        self._should_abort: Callable[[], bool] = lambda: False
        self._error: Exception | None = None
        self._callback = ABORT_CALLBACK(self._ask)
        self._address = address(self._callback)

    def watch(self, should_abort: Callable[[], bool]) -> _Abort:
        self._should_abort = should_abort
        return self

    def __enter__(self) -> None:
        self._error = None
        self._library.set_abort(self._context, self._address, None)

    def __exit__(self, *exc_info: object) -> None:
        self._library.set_abort(self._context, None, None)
        if self._error is not None:
            raise self._error

    def _ask(self, _data: object) -> bool:
        try:
            return self._should_abort()
        except Exception as error:  # noqa: BLE001  raised again when the call returns: C cannot carry it
            self._error = error
            return True
