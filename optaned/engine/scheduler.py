"""Which call the model makes next: one decode for all answers, or one chunk of one prompt; in turn, never in one call.

Another request's chunk in a decode call moves a dense model's logits by 1.2, and aborting a mixed call destroys the
state of innocent slots of a hybrid model (both measured); so only a prefill call may be aborted. Knows no process, no
thread and no frame format.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from optaned.domain.generation import FinishReason, SlotState, SlotView, Timings, Usage
from optaned.engine.answer import Answer
from optaned.engine.messages import (
    Embedding,
    EmbedTokens,
    Failed,
    Finished,
    FromWorker,
    Generate,
    Pieces,
    Prefilled,
    Slots,
    Started,
)
from optaned.engine.slots import Slot, choose_slot
from optaned.hooks.drivers import DecodeAborted, DecodeFailed, Embeds, GrammarError, Model, Row


@dataclass(slots=True)
class _Waiting:
    request: Generate | EmbedTokens
    arrived_s: float


@dataclass(slots=True)
class _Times:
    """When an answer arrived, got its slot and began to decode (0: not yet)."""

    arrived_s: float
    admitted_s: float
    decoding_s: float = 0.0

    def until(self, now_s: float) -> Timings:
        decoding_s = self.decoding_s or now_s
        return Timings(self.admitted_s - self.arrived_s, decoding_s - self.admitted_s, now_s - decoding_s)


@dataclass(slots=True)
class _EmbedJob:
    """A text to embed and the slot it uses."""

    request: EmbedTokens
    slot: Slot

    @property
    def id(self) -> str:
        return self.request.id

    def view(self) -> SlotView:
        tokens = len(self.request.tokens)
        return SlotView(self.slot.number, SlotState.PREFILL, self.id, prompt_tokens=tokens)


class StepWatch(Protocol):
    """Whoever must know when answers wait for a decode call: what moves pages then goes slow."""

    def begin_step(self, rows: int) -> None: ...

    def end_step(self) -> None: ...


class Unwatched:
    """Nothing moves."""

    def begin_step(self, rows: int) -> None:
        """Nobody has to know."""

    def end_step(self) -> None:
        """Nobody has to know."""


class Scheduler:
    """The slots of one model. `step` makes one call to the model and returns what is to be told.

    `is_cancelled(id)` is polled inside a prefill, from wherever the library likes; `cancel` is called between steps;
    `watch` hears when each decode call begins and ends.
    """

    def __init__(
        self,
        model: Model,
        *,
        is_cancelled: Callable[[str], bool] = lambda _id: False,
        clock: Callable[[], float] = time.monotonic,
        watch: StepWatch | None = None,
    ) -> None:
        self._model = model
        self._watch = Unwatched() if watch is None else watch
        self._info = model.info
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._idle = [Slot(number) for number in range(self._info.slots)]
        self._waiting: deque[_Waiting] = deque()
        self._prefilling: deque[Answer | _EmbedJob] = deque()
        self._decoding: list[Answer] = []
        self._times: dict[str, _Times] = {}
        self._uses = 0
        self._decode_turn = True
        self._changed = False
        self._out: list[FromWorker] = []

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do or to tell."""
        return bool(self._decoding or self._prefilling or self._waiting or self._out)

    @property
    def only_decodes(self) -> bool:
        """Whether the next step is a decode call: short, and sure to tell something."""
        return bool(self._decoding) and not (self._prefilling or self._waiting)

    # ---- what comes in -----------------------------------------------------------------------------------------------

    def submit(self, request: Generate | EmbedTokens) -> None:
        """Queue a request. One that cannot fit is answered with `Failed` by the next step."""
        fault = self._fault(request)
        if fault is not None:
            self._out.append(fault)
            return
        self._waiting.append(_Waiting(request, self._clock()))
        self._changed = True

    def cancel(self, request_id: str) -> None:
        """End a request now. Unknown ids (it has just finished) are ignored."""
        for waiting in self._waiting:
            if waiting.request.id == request_id:
                self._waiting.remove(waiting)
                timings = Timings(queued_s=self._clock() - waiting.arrived_s)
                self._out.append(Finished(request_id, FinishReason.CANCELLED, Usage(), timings))
                self._changed = True
                return
        for job in (*self._prefilling, *self._decoding):
            if job.id == request_id:
                self._cancel(job)
                return

    def _fault(self, request: Generate | EmbedTokens) -> Failed | None:
        context = self._info.context
        if isinstance(request, EmbedTokens):
            count, wanted = len(request.tokens), 0
            if not isinstance(self._model, Embeds) or not self._info.embeds:
                return Failed(request.id, "embeddings_unsupported", "this model gives no embeddings")
        else:
            count, wanted = len(request.prompt), max(request.max_tokens, 0)
        if count == 0:
            return Failed(request.id, "prompt_empty", "the prompt has no tokens")
        if count + wanted > context:
            numbers = f"{count} prompt tokens and {wanted} to generate; this model holds {context} tokens"
            return Failed(request.id, "context_length_exceeded", numbers)
        return None

    # ---- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> list[FromWorker]:
        """Make one call to the model at most, and return what is to be told, in order."""
        if self._waiting and self._idle:
            # Told before the call: evaluating a long prompt takes minutes.
            self._admit()
        elif self._decoding and (self._decode_turn or not self._prefilling):
            self._decode_turn = False
            self._decode()
        elif self._prefilling:
            self._decode_turn = True
            job = self._prefilling[0]
            if isinstance(job, Answer):
                self._prefill(job)
            else:
                self._embed(job)
        if self._changed:
            self._changed = False
            self._out.append(Slots(self._views(), len(self._waiting)))
        out, self._out = self._out, []
        return out

    def _admit(self) -> None:
        while self._waiting and self._idle:
            waiting = self._waiting.popleft()
            self._changed = True
            if isinstance(waiting.request, EmbedTokens):
                self._prefilling.append(_EmbedJob(waiting.request, self._take_emptiest()))
            else:
                self._start(waiting.request, waiting.arrived_s)

    def _take_emptiest(self) -> Slot:
        slot = min(self._idle, key=lambda slot: (len(slot.tokens) > 0, slot.used))
        self._idle.remove(slot)
        slot.tokens.clear()
        return slot

    def _start(self, request: Generate, arrived_s: float) -> None:
        try:
            sampler = self._model.sampler(request.sampling, request.prompt)
        except GrammarError as error:
            self._out.append(Failed(request.id, "grammar_invalid", str(error)))
            return
        slot, keep = choose_slot(self._idle, list(request.prompt), can_cut=self._info.can_cut)
        self._idle.remove(slot)
        self._keep(slot, keep)
        cached = len(slot.tokens)
        answer = Answer(request, slot, cached=cached, sampler=sampler, vocabulary=self._model.vocabulary)
        self._times[request.id] = _Times(arrived_s, self._clock())
        self._prefilling.append(answer)
        self._out.append(Started(request.id, slot.number, cached))

    def _decode(self) -> None:
        answers = self._decoding
        rows = [
            Row(a.pending, len(a.slot.tokens), a.slot.number, logits=True) for a in answers if a.pending is not None
        ]
        self._watch.begin_step(len(rows))
        try:
            self._model.decode(rows)
        except DecodeFailed as error:
            self._decode_each(answers, rows, error)
            return
        finally:
            self._watch.end_step()
        for answer, row in zip(answers, rows, strict=True):
            answer.slot.tokens.append(row.token)
        self._advance(answers)

    def _decode_each(self, answers: list[Answer], rows: list[Row], error: DecodeFailed) -> None:
        """Find out whose row the library refuses: the others go on."""
        for answer, row in list(zip(answers, rows, strict=True)):
            failure = error
            if len(rows) > 1 and self._model.cut(row.slot, row.position):
                try:
                    self._model.decode([row])
                except DecodeFailed as own_error:
                    failure = own_error
                else:
                    answer.slot.tokens.append(row.token)
                    self._advance([answer])
                    continue
            self._fail(answer, failure)

    def _prefill(self, answer: Answer) -> None:
        """Evaluate one chunk of a prompt; the last one also gives the first token."""
        begin = len(answer.slot.tokens)
        chunk = answer.prompt[begin : begin + self._info.batch]
        last = len(answer.prompt) - 1
        number = answer.slot.number
        rows = [Row(token, at, number, at == last) for at, token in enumerate(chunk, begin)]
        request_id, is_cancelled = answer.id, self._is_cancelled
        try:
            self._model.decode(rows, should_abort=lambda: is_cancelled(request_id))
        except DecodeAborted:
            self._cancel(answer)
            return
        except DecodeFailed as error:
            self._fail(answer, error)
            return
        answer.slot.tokens += chunk
        self._changed = True
        self._out.append(Prefilled(answer.id, begin + len(chunk), len(answer.prompt)))
        if answer.remaining_prompt == 0:
            self._prefilling.popleft()
            self._decoding.append(answer)
            self._times[answer.id].decoding_s = self._clock()
            self._advance([answer])

    def _advance(self, answers: list[Answer]) -> None:
        """Choose one token for each answer; output row i of the last call belongs to answer i."""
        pieces = [answer.advance(output) for output, answer in enumerate(answers)]
        told = tuple([piece for piece in pieces if piece.tokens or piece.text])
        if told:
            self._out.append(Pieces(told))
        if any(answer.reason for answer in answers):
            for answer in [answer for answer in answers if answer.reason is not None]:
                self._finish(answer)

    def _embed(self, job: _EmbedJob) -> None:
        model, request_id, is_cancelled = self._model, job.id, self._is_cancelled
        if not isinstance(model, Embeds):
            raise TypeError("only requests that fit the model are admitted")
        try:
            vector = model.embed(job.slot.number, job.request.tokens, should_abort=lambda: is_cancelled(request_id))
        except DecodeAborted:
            self._cancel(job)
        except DecodeFailed as error:
            self._fail(job, error)
        else:
            self._out.append(Embedding(job.id, tuple(vector)))
            self._release(job)

    # ---- ends --------------------------------------------------------------------------------------------------------

    def _cancel(self, job: Answer | _EmbedJob) -> None:
        if isinstance(job, _EmbedJob):
            self._keep(job.slot, 0)
            self._out.append(Finished(job.id, FinishReason.CANCELLED, Usage(), Timings()))
            self._release(job)
            return
        if job.pending is None:
            # An aborted prefill may have left state behind what counts as evaluated.
            self._keep(job.slot, len(job.slot.tokens) if self._info.can_cut else 0)
        piece = job.cancel()
        if piece.text:
            self._out.append(Pieces((piece,)))
        self._finish(job)

    def _finish(self, answer: Answer) -> None:
        self._out.append(answer.finished(self._times[answer.id].until(self._clock())))
        self._release(answer)

    def _fail(self, job: Answer | _EmbedJob, error: DecodeFailed) -> None:
        self._keep(job.slot, 0)
        self._out.append(Failed(job.id, "decode_failed", str(error)))
        self._release(job)

    def _release(self, job: Answer | _EmbedJob) -> None:
        if isinstance(job, Answer):
            job.close()
            del self._times[job.id]
        if job in self._prefilling:
            self._prefilling.remove(job)
        else:
            self._decoding = [answer for answer in self._decoding if answer is not job]
        self._uses += 1
        job.slot.used = self._uses
        self._idle.append(job.slot)
        self._changed = True

    def _keep(self, slot: Slot, length: int) -> None:
        """Let the model hold exactly the first `length` tokens of the slot, or nothing where it cannot cut."""
        if not self._model.cut(slot.number, length):
            length = 0
            self._model.cut(slot.number, 0)
        del slot.tokens[length:]

    def _views(self) -> tuple[SlotView, ...]:
        views = [job.view() for job in (*self._prefilling, *self._decoding)]
        views += [SlotView(slot.number) for slot in self._idle]
        return tuple(sorted(views, key=lambda view: view.slot))
