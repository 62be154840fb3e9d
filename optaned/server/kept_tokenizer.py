"""The tokenizer as routes use it: questions to a child that may die and come back. Knows no engine and no HTTP."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from optaned.engine.keeper import Keeper, Patience
from optaned.engine.messages import (
    CheckGrammar,
    Detokenize,
    Failed,
    FromWorker,
    Open,
    Opened,
    Refused,
    Render,
    Rendered,
    SchemaGrammar,
    Text,
    Tokenize,
    Tokens,
)
from optaned.server.ports import Failure

log = logging.getLogger("optaned.server")

ReplyT = TypeVar("ReplyT", Tokens, Text, Rendered)
Question = Tokenize | Detokenize | Render | CheckGrammar | SchemaGrammar

# A tokenizer that has just died is back in well under a second; a first one reads its vocabulary in a few.
_READY_WITHIN_S = 10.0

# The longest question, tens of megabytes of text, takes some seconds; one that answers nobody for so long hangs.
_ANSWER_WITHIN_S = 60.0


class KeptTokenizer:
    """Implements TokenizerPort and hears its worker (a keeper's Listener).

    `changed()` is called when it opened, `lost(reason)` when it is gone for good.
    """

    def __init__(
        self,
        *,
        changed: Callable[[], None],
        lost: Callable[[str], None],
        patience: Patience,
        answer_within_s: float = _ANSWER_WITHIN_S,
    ) -> None:
        self._answer_within_s = answer_within_s
        self._changed = changed
        self._lost = lost
        self._patience = patience
        self._keeper: Keeper | None = None
        self._open = asyncio.Event()
        self._numbers = itertools.count(1)
        self._questions: dict[str, asyncio.Future[FromWorker]] = {}
        self._why_not = Failure("model_not_loaded", "no model is loaded")
        self._answered = 0
        self.opened: Opened | None = None
        self.pid: int | None = None

    def start(self, wanted: Open) -> None:
        """Start the child for another model."""
        self.opened = None
        self._why_not = Failure("model_loading", "the tokenizer is starting", retry_after_s=1)
        self._keeper = Keeper(wanted, self, patience=self._patience)
        self._keeper.start()

    def retire(self, why: Failure) -> Keeper | None:
        """Kill the child and return its keeper, to be stopped; open and later questions fail with `why`."""
        self.opened = None
        self.pid = None
        self._end(why)
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.kill()
        return keeper

    # ---- what routes ask ---------------------------------------------------------------------------------------------

    async def tokenize(self, text: str, *, special: bool, bos: bool) -> Tokens:
        return await self._ask(Tokenize(self._next(), text, special, bos), Tokens)

    async def detokenize(self, tokens: Sequence[int]) -> str:
        return (await self._ask(Detokenize(self._next(), tuple(tokens)), Text)).text

    async def render(
        self, messages: Sequence[Mapping[str, Any]], *, continue_assistant: bool, template_kwargs: Mapping[str, Any]
    ) -> Rendered:
        question = Render(self._next(), tuple(messages), continue_assistant, template_kwargs)
        return await self._ask(question, Rendered)

    async def check_grammar(self, grammar: str) -> None:
        await self._ask(CheckGrammar(self._next(), grammar), Text)

    async def schema_grammar(self, schema: Mapping[str, Any]) -> str:
        return (await self._ask(SchemaGrammar(self._next(), schema), Text)).text

    # ---- what the keeper tells ---------------------------------------------------------------------------------------

    def spawned(self, pid: int) -> None:
        self.pid = pid

    def message(self, message: FromWorker) -> None:
        if isinstance(message, Opened):
            self.opened = message
            self._open.set()
            self._changed()
        elif isinstance(message, Tokens | Text | Rendered | Failed):
            self._answered += 1
            if self._keeper is not None:
                self._keeper.progressed()
            waiting = self._questions.pop(message.id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def died(self, reason: str, *, delay_s: float) -> None:  # noqa: ARG002  a fraction of a second
        self.pid = None
        self._end(Failure("engine_died", f"the tokenizer {reason}; it is being started again", retry_after_s=1))

    def refused(self, refusal: Refused) -> None:
        self._give_up("\n".join(refusal.lines))

    def gave_up(self, reason: str, *, deaths: int) -> None:
        self._give_up(f"the tokenizer {reason} and died {deaths} times in a row")

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _give_up(self, why: str) -> None:
        self.pid = None
        self._end(Failure("model_failed", why))
        self._lost(why)

    def _end(self, failure: Failure) -> None:
        self._open.clear()
        self._why_not = failure
        questions, self._questions = self._questions, {}
        for waiting in questions.values():
            if not waiting.done():
                waiting.set_exception(failure.again())

    def _next(self) -> str:
        return f"t{next(self._numbers)}"

    async def _ask(self, question: Question, kind: type[ReplyT]) -> ReplyT:
        await self._until_open()
        keeper = self._keeper
        if keeper is None:
            raise self._why_not.again()
        waiting: asyncio.Future[FromWorker] = asyncio.get_running_loop().create_future()
        self._questions[question.id] = waiting
        keeper.send(question)
        try:
            reply = await self._reply(waiting, keeper)
        finally:
            self._questions.pop(question.id, None)
        if isinstance(reply, Failed):
            raise Failure(reply.code, reply.message)
        if not isinstance(reply, kind):
            raise TypeError(f"asked {type(question).__name__}, was answered {type(reply).__name__}")
        return reply

    async def _reply(self, waiting: asyncio.Future[FromWorker], keeper: Keeper) -> FromWorker:
        """Wait for an answer. A child that answers nobody for too long is killed: the next one is up in a second."""
        while True:
            answered = self._answered
            done, _ = await asyncio.wait((waiting,), timeout=self._answer_within_s)
            if done:
                return waiting.result()
            if answered == self._answered:
                log.error("the tokenizer has not answered for %g s: killing it", self._answer_within_s)
                keeper.kill_worker()

    async def _until_open(self) -> None:
        """Wait out a restart; raises Failure when none is under way or it takes too long."""
        if self._open.is_set():
            return
        if self._why_not.code not in ("model_loading", "engine_died"):
            raise self._why_not.again()
        try:
            await asyncio.wait_for(self._open.wait(), _READY_WITHIN_S)
        except TimeoutError:
            raise self._why_not.again() from None
