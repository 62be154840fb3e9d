"""A model that remembers exactly what it was given to evaluate, and refuses what a real one would get wrong.

Each cell holds a hash over everything before it, so that a sampler sees at once whether its slot holds the state that
its answer needs: a mistake in prefix reuse or in clearing a slot ends the process instead of passing unseen.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from optaned.api import DecodeAborted, DecodeFailed, LoadRequest, ModelInfo, RouterChoice, RouterCounts, Row, Sampling
from optaned_echo.answers import answer_text, script_of
from optaned_echo.directives import Event
from optaned_echo.events import happen
from optaned_echo.files import MappedFiles
from optaned_echo.options import EchoOptions
from optaned_echo.router import EchoRouter
from optaned_echo.sampler import EchoSampler
from optaned_echo.vocabulary import EchoVocabulary

# How often a slow prefill asks whether to go on; the library asks hundreds of times a token.
_POLL_S = 0.002


class EchoModel:
    """Slots of cells, one a token. Implements Model, Embeds, Tapped and, with files that are there, Mapped."""

    def __init__(
        self, request: LoadRequest, options: EchoOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock = clock
        self._vocabulary = EchoVocabulary(options.trained_context)
        self._cells: list[list[int]] = [[] for _ in range(request.slots)]
        self._outputs: list[tuple[int, int]] = []
        self._router = EchoRouter(options)
        self._weights = MappedFiles(request.files)
        self._prefill_events: dict[int, list[Event]] = {}
        self._failing: set[int] = set()
        self._info = ModelInfo(
            description="echo",
            context=request.context,
            slots=request.slots,
            batch=request.batch,
            embedding_size=options.embedding_size,
            can_cut=options.can_cut,
            embeds=True,
            threads=request.threads,
            library="echo",
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def vocabulary(self) -> EchoVocabulary:
        return self._vocabulary

    def decode(self, rows: Sequence[Row], *, should_abort: Callable[[], bool] | None = None) -> None:
        """Evaluate rows; DecodeFailed for a gap, an overflow or a scripted failure, then nothing was evaluated."""
        states = self._evaluate(rows)
        if should_abort is not None:
            for state in self._prefill_events.keys() & set(states):
                self._let_happen(self._prefill_events.pop(state), should_abort)
            self._spend(len(rows), should_abort)
        elif self._options.token_delay_s:
            time.sleep(self._options.token_delay_s)
        for row, state in zip(rows, states, strict=True):
            self._cells[row.slot].append(state)
        self._outputs = [(row.slot, state) for row, state in zip(rows, states, strict=True) if row.logits]
        self._router.route([row.token for row in rows], prefill=should_abort is not None)
        self._weights.read()

    def sampler(self, sampling: Sampling, history: Sequence[int]) -> EchoSampler:
        if sampling.grammar is not None:
            self._vocabulary.check_grammar(sampling.grammar)
        script = script_of(history)
        text = answer_text(script, sampling, grammar_answer=self._options.grammar_answer)
        state = 0
        for token in history:
            state = next_state(state, token)
        during_prefill = [event for event in script.events if event.at is None]
        if during_prefill:
            self._prefill_events[state] = during_prefill
        own = tuple(Event(event.do, event.at, event.value) for event in self._options.script)
        return EchoSampler(self, text.encode(errors="replace"), own + script.events, state)

    def output(self, number: int) -> tuple[int, int]:
        """Return slot and state of output row `number` of the last call."""
        return self._outputs[number]

    def fail_next(self, slot: int) -> None:
        """Refuse the next call that has a row of `slot`."""
        self._failing.add(slot)

    def cut(self, slot: int, length: int) -> bool:
        cells = self._cells[slot]
        if 0 < length < len(cells) and not self._options.can_cut:
            return False
        del cells[length:]
        if length == 0:
            self._failing.discard(slot)
        return True

    def embed(self, slot: int, tokens: Sequence[int], *, should_abort: Callable[[], bool] | None = None) -> list[float]:
        """Return numbers from a hash of the tokens: the same text gives the same vector, another text another one."""
        self.cut(slot, 0)
        self._spend(len(tokens), should_abort or (lambda: False))
        size = self._options.embedding_size
        seed = b"".join(token.to_bytes(4, "little") for token in tokens)
        raw = hashlib.shake_128(seed).digest(2 * size)
        values = [int.from_bytes(raw[2 * i : 2 * i + 2], "little") - 32767.5 for i in range(size)]
        norm = sum(value * value for value in values) ** 0.5
        return [value / norm for value in values]

    def take_choices(self) -> tuple[RouterChoice, ...]:
        return self._router.take_choices()

    def take_counts(self) -> RouterCounts:
        return self._router.take_counts()

    def trace(self, *, on: bool) -> None:
        self._router.trace(on=on)

    @property
    def mapped_files(self) -> tuple[Path, ...]:
        return self._weights.files

    def close(self) -> None:
        self._weights.close()

    def _evaluate(self, rows: Sequence[Row]) -> list[int]:
        """Return the state after each row. Raises DecodeFailed."""
        ends: dict[int, tuple[int, int]] = {}
        states = []
        for token, position, slot, _ in rows:
            cells = self._cells[slot]
            length, state = ends.get(slot) or (len(cells), cells[-1] if cells else 0)
            if position != length:
                raise DecodeFailed(f"slot {slot} holds {length} tokens, so position {position} cannot follow")
            if length >= self._info.context:
                raise DecodeFailed(f"slot {slot} is full: {length} tokens")
            if not 0 <= token < self._vocabulary.size:
                raise DecodeFailed(f"token {token} is not in the vocabulary")
            state = next_state(state, token)
            states.append(state)
            ends[slot] = (length + 1, state)
        for slot in self._failing & ends.keys():
            raise DecodeFailed(f"slot {slot} was told to fail")
        return states

    def _let_happen(self, events: Sequence[Event], should_abort: Callable[[], bool]) -> None:
        for event in events:
            if event.do == "fail":
                raise DecodeFailed("the prompt told it to fail")
            happen(event, should_abort)

    def _spend(self, count: int, should_abort: Callable[[], bool]) -> None:
        """Take the time of `count` prompt tokens. Raises DecodeAborted."""
        deadline = self._clock() + count * self._options.prefill_delay_s_per_token
        while True:
            if should_abort():
                raise DecodeAborted
            left_s = deadline - self._clock()
            if left_s <= 0:
                return
            time.sleep(min(left_s, _POLL_S))


def next_state(state: int, token: int) -> int:
    """Return the state after one more token."""
    return hash((state, token))
