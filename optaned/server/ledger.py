"""Which requests are open and what all of them used so far. Knows no child, no state and no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optaned.domain.generation import SlotState, SlotView
from optaned.engine.messages import Embedding, Failed, Finished, FromWorker, Pieces, Prefilled, Started, Text
from optaned.server.open_answer import OpenAnswer
from optaned.server.ports import Failure


@dataclass(slots=True)
class Totals:
    """Sums over all requests since the server started."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class Ledger:
    """Open answers, embeddings and questions by id. Each ends exactly once: by its own last message or by `fail_all`.

    Questions need no slot, so that they do not count.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self._answers: dict[str, OpenAnswer] = {}
        self._embeddings: dict[str, asyncio.Future[Sequence[float]]] = {}
        self._questions: dict[str, asyncio.Future[str]] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._answers) + len(self._embeddings)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._answers or request_id in self._embeddings

    def open_answer(self, request_id: str, *, leave: Callable[[str], None]) -> OpenAnswer:
        """Enter an answer, which stays open until its last message even when its route has gone."""
        self.totals.requests += 1
        answer = self._answers[request_id] = OpenAnswer(request_id, leave=leave)
        return answer

    def open_embedding(self, request_id: str) -> asyncio.Future[Sequence[float]]:
        """Enter an embedding and return what its vector will be."""
        self.totals.requests += 1
        future: asyncio.Future[Sequence[float]] = asyncio.get_running_loop().create_future()
        self._embeddings[request_id] = future
        return future

    def open_question(self, request_id: str) -> asyncio.Future[str]:
        """Enter a question and return what its answer will be."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._questions[request_id] = future
        return future

    def deliver(self, message: FromWorker) -> None:
        """Hand a message to the request that it is about; one that nobody waits for any more is dropped."""
        # Ordered by how often they come: one Pieces a token.
        match message:
            case Pieces():
                self._deliver_pieces(message)
            case Started() | Prefilled():
                answer = self._answers.get(message.id)
                if answer is not None:
                    answer.put(message)
            case Finished():
                self._finish(message)
            case Failed():
                self._fail(message)
            case Embedding():
                future = self._embeddings.pop(message.id, None)
                if future is not None and not future.done():
                    future.set_result(message.vector)
            case Text():
                question = self._questions.pop(message.id, None)
                if question is not None and not question.done():
                    question.set_result(message.text)

    def fail_all(self, failure: Failure) -> None:
        """End everything that is open."""
        answers, self._answers = self._answers, {}
        embeddings, self._embeddings = self._embeddings, {}
        questions, self._questions = self._questions, {}
        self._counts.clear()
        for answer in answers.values():
            answer.fail(failure.again())
        waiting: list[asyncio.Future[Any]] = [*embeddings.values(), *questions.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(failure.again())

    def live(self, view: SlotView) -> SlotView:
        """Return a slot with the tokens that have come since the engine last described it."""
        if view.state is not SlotState.DECODE or view.request is None:
            return view
        return replace(view, completion_tokens=self._counts.get(view.request, view.completion_tokens))

    def _deliver_pieces(self, message: Pieces) -> None:
        for piece in message.pieces:
            answer = self._answers.get(piece.id)
            if answer is not None:
                count = len(piece.tokens)
                self.totals.completion_tokens += count
                self._counts[piece.id] = self._counts.get(piece.id, 0) + count
                answer.put(piece)

    def _finish(self, message: Finished) -> None:
        totals = self.totals
        totals.prompt_tokens += message.usage.prompt_tokens
        totals.cached_tokens += message.usage.cached_tokens
        totals.prefill_s += message.timings.prefill_s
        totals.decode_s += message.timings.decode_s
        self._counts.pop(message.id, None)
        self._embeddings.pop(message.id, None)
        answer = self._answers.pop(message.id, None)
        if answer is not None:
            answer.put(message)

    def _fail(self, message: Failed) -> None:
        failure = Failure(message.code, message.message)
        self._counts.pop(message.id, None)
        answer = self._answers.pop(message.id, None)
        if answer is not None:
            answer.fail(failure)
        future: asyncio.Future[Any] | None
        for future in (self._embeddings.pop(message.id, None), self._questions.pop(message.id, None)):
            if future is not None and not future.done():
                future.set_exception(failure)
