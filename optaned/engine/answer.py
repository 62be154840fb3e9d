"""One answer from its slot to its end: which token comes next, what text it adds, and why it is over.

Knows its sampler, its text and its own counts; knows no other answer, no decode call and no process.
"""

from __future__ import annotations

from optaned.domain.generation import FinishReason, Sampled, SlotState, SlotView, Timings, TokenLogprob, Usage
from optaned.engine.messages import Finished, Generate, Logprob, Piece
from optaned.engine.slots import Slot
from optaned.engine.text import TextStream
from optaned.hooks.drivers import Sampler, Vocabulary


class Answer:
    """The request in `slot`. `pending` is the chosen token that is not evaluated yet (None while it prefills)."""

    def __init__(self, request: Generate, slot: Slot, *, cached: int, sampler: Sampler, vocabulary: Vocabulary) -> None:
        self.id = request.id
        self.slot = slot
        self.prompt = list(request.prompt)
        self.pending: int | None = None
        self.reason: FinishReason | None = None
        self._request = request
        self._sampler = sampler
        self._vocabulary = vocabulary
        self._text = TextStream(request.stop)
        self._cached = cached
        self._count = 0

    @property
    def remaining_prompt(self) -> int:
        """Prompt tokens still to be evaluated."""
        return len(self.prompt) - len(self.slot.tokens)

    def advance(self, output: int) -> Piece:
        """Choose the next token from output row `output` of the last decode; sets `reason` when it was the last one."""
        request = self._request
        if self._count >= request.max_tokens:
            return self._end(FinishReason.LENGTH)
        sampled = self._sampler.sample(output, position=self._count, top_logprobs=request.logprobs)
        token = sampled.token
        if self._vocabulary.is_end(token):
            return self._end(FinishReason.STOP)
        self.pending = token
        self._count += 1
        text = self._text.feed(self._vocabulary.piece(token))
        if self._text.stopped is not None:
            self.reason = FinishReason.STOP
        elif self._count >= request.max_tokens:
            self.reason = FinishReason.LENGTH
            text += self._text.finish()
            # What was held back may have completed a stop string with the replacement of a broken character.
            if self._text.stopped is not None:
                self.reason = FinishReason.STOP
        return Piece(self.id, (token,), text, self._logprobs(sampled))

    def cancel(self) -> Piece:
        """End here and return what was held back."""
        return self._end(FinishReason.CANCELLED)

    def finished(self, timings: Timings) -> Finished:
        """Return the last message of this answer. Only valid once `reason` is set."""
        if self.reason is None:
            raise ValueError(f"answer {self.id} has not ended")
        usage = Usage(len(self.prompt), self._count, self._cached)
        return Finished(self.id, self.reason, usage, timings, self._text.stopped)

    def view(self) -> SlotView:
        """Return this answer's slot as people may see it."""
        return SlotView(
            slot=self.slot.number,
            state=SlotState.PREFILL if self.pending is None else SlotState.DECODE,
            request=self.id,
            prompt_tokens=len(self.prompt),
            prefilled_tokens=min(len(self.slot.tokens), len(self.prompt)),
            completion_tokens=self._count,
            cached_tokens=self._cached,
        )

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()

    def _end(self, reason: FinishReason) -> Piece:
        self.reason = reason
        return Piece(self.id, (), self._text.finish())

    def _logprobs(self, sampled: Sampled) -> tuple[Logprob, ...]:
        found = sampled.logprob
        return () if found is None else (self._logprob(found),)

    def _logprob(self, found: TokenLogprob) -> Logprob:
        piece = self._vocabulary.piece
        return Logprob(piece(found.token), found.logprob, tuple((piece(token), value) for token, value in found.top))
