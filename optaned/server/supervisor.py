"""The life of the two children and what it means for requests: loading, dying, coming back, giving up, closing.

Whatever happens to a child, every open answer ends with an event or a `Failure`. Knows no HTTP and no configuration;
views are plain attributes and never a question to a child.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol

from optaned.domain.generation import SlotView
from optaned.engine.keeper import Keeper, Patience
from optaned.engine.messages import (
    Cancel,
    Choices,
    EmbedTokens,
    Failed,
    FromWorker,
    Generate,
    Loading,
    Move,
    Open,
    Opened,
    Refused,
    Residency,
    Slots,
    Started,
    Trace,
)
from optaned.server.kept_tokenizer import KeptTokenizer
from optaned.server.ledger import Ledger
from optaned.server.open_answer import OpenAnswer
from optaned.server.ports import EngineState, EngineView, Failure, Placed
from optaned.server.tracers import OpenTrace, Tracers

log = logging.getLogger("optaned.server")

# `close` promises an end within a second; a child whose memory takes longer to free is left to init.
_CLOSE_WITHIN_S = 0.9

_MAX_RETRY_AFTER_S = 120

_DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A declared model: the first frames of its engine and of its tokenizer, and what was planned for its bytes."""

    name: str
    open_engine: Open
    open_tokenizer: Open
    placed: Placed | None = None


class Brake(Protocol):
    """Whatever stops and resumes the engine for heat; it is told which process that is."""

    def attach(self, pid: int) -> None: ...

    def detach(self) -> None: ...


class NoBrake:
    """For a machine without a guard, and for tests."""

    def attach(self, pid: int) -> None:
        """Nothing to watch."""

    def detach(self) -> None:
        """Nothing was watched."""


class Supervisor:
    """Implements EnginePort, hears the engine's keeper (a Listener), and owns `tokenizer`, a TokenizerPort.

    `queue` is how many requests may wait beyond those that have a slot.
    """

    def __init__(
        self,
        declared: Mapping[str, ModelSpec],
        *,
        queue: int,
        brake: Brake | None = None,
        patience: Patience = _DEFAULT_PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._declared = dict(declared)
        self._queue = queue
        self._brake = NoBrake() if brake is None else brake
        self._patience = patience
        self._clock = clock
        self._keeper: Keeper | None = None
        self._retired: list[Keeper] = []
        self._view = EngineView()
        self._ledger = Ledger()
        self._tracers = Tracers(self._listen)
        self._questions = count(1)
        self._slots: Slots = Slots((), 0)
        self._engine_opened: Opened | None = None
        self._loading_since_s = 0.0
        self._progress_s: float | None = None
        self._parked: Failure | None = None
        self._switching = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.tokenizer = KeptTokenizer(changed=self._see_if_ready, lost=self._lose, patience=patience)

    # ---- EnginePort --------------------------------------------------------------------------------------------------

    @property
    def view(self) -> EngineView:
        totals = self._ledger.totals
        return replace(
            self._view,
            slots=tuple(self._ledger.live(view) for view in self._slots.views),
            waiting=self._slots.waiting,
            active=max(len(self._ledger) - self._slots.waiting, 0),
            prompt_tokens_total=totals.prompt_tokens,
            cached_tokens_total=totals.cached_tokens,
            completion_tokens_total=totals.completion_tokens,
            requests_total=totals.requests,
            prefill_s_total=totals.prefill_s,
            decode_s_total=totals.decode_s,
            last_progress_age_s=None if self._progress_s is None else self._clock() - self._progress_s,
        )

    def check_ready(self) -> None:
        """Raise the Failure that says why no model answers now; return when one does."""
        self._ready_keeper()

    def submit(self, request: Generate) -> OpenAnswer:
        """Start answering. Raises Failure when that cannot be now; iterating raises it when the engine dies."""
        keeper = self._admit(request.id)
        answer = self._ledger.open_answer(request.id, leave=self._cancel)
        keeper.send(request)
        return answer

    async def embed(self, request_id: str, tokens: Sequence[int]) -> Sequence[float]:
        """Return an embedding; raises Failure. Cancelling the caller's task cancels the request."""
        keeper = self._admit(request_id)
        vector = self._ledger.open_embedding(request_id)
        keeper.send(EmbedTokens(request_id, tuple(tokens)))
        try:
            return await vector
        except asyncio.CancelledError:
            self._cancel(request_id)
            raise

    async def load(self, model: str) -> None:
        """Begin to load a declared model instead of the present one; a loaded or loading one is left alone.

        Raises KeyError for an unknown name and Failure while the server stops or is parked.
        """
        spec = self._declared[model]
        if self._view.state is EngineState.STOPPING:
            raise Failure("shutting_down", "the server is shutting down")
        if self._parked is not None:
            raise self._parked.again()
        healthy = (EngineState.LOADING, EngineState.READY, EngineState.RESTARTING)
        if self._view.model == model and self._view.state in healthy:
            return
        self._begin(EngineState.LOADING, model, f"{self._view.model} was unloaded to load {model}")
        self._view = replace(self._view, placed=spec.placed)
        self._loading_since_s = self._clock()
        self._spawn(self._switch(spec))

    async def unload(self) -> None:
        """End both children; returns when that has begun."""
        if self._view.state is EngineState.STOPPING:
            return
        self._begin(EngineState.UNLOADED, None, "the model was unloaded")
        self._spawn(self._switch(None))

    async def move(self, do: str, layer: int, expert: int | None) -> str:
        """Have bytes moved by hand; return what will be done. Raises Failure, `move_refused` with the reason too."""
        keeper = self._ready_keeper()
        move = Move(f"m{next(self._questions)}", do, layer, expert)
        answer = self._ledger.open_question(move.id)
        keeper.send(move)
        return await answer

    def trace(self) -> OpenTrace:
        """Return the router's choices from now on. Raises Failure."""
        self._ready_keeper()
        return self._tracers.open()

    # ---- the server's own --------------------------------------------------------------------------------------------

    async def park(self, reason: str) -> None:
        """Kill the engine for heat and refuse to load until `unpark`; answers fail with `thermal_trip`."""
        self._parked = Failure("thermal_trip", reason, retry_after_s=_MAX_RETRY_AFTER_S)
        self._begin(EngineState.UNLOADED, None, reason, failure=self._parked)
        await self._switch(None)

    def unpark(self) -> None:
        """Allow loading again."""
        self._parked = None

    async def close(self, reason: str) -> None:
        """End every answer with `shutting_down` and kill both children, within a second."""
        failure = Failure("shutting_down", f"the server is shutting down: {reason}")
        self._begin(EngineState.STOPPING, self._view.model, reason, failure=failure)
        try:
            await asyncio.wait_for(self._switch(None), _CLOSE_WITHIN_S)
        except TimeoutError:
            log.warning("a child is still freeing its memory; leaving it behind")

    # ---- what the keeper tells ---------------------------------------------------------------------------------------

    def spawned(self, pid: int) -> None:
        self._view = replace(self._view, pid=pid)
        self._loading_since_s = self._clock()
        self._brake.attach(pid)

    def message(self, message: FromWorker) -> None:
        match message:
            case Slots():
                self._slots = message
            case Loading():
                detail = message.detail or self._view.detail
                self._view = replace(self._view, fraction=message.fraction, detail=detail)
            case Residency():
                self._view = replace(self._view, residency=message)
            case Choices():
                self._tracers.deliver(message)
            case Failed(code="trace_unsupported"):
                self._tracers.fail_all(Failure(message.code, message.message))
            case Opened():
                self._engine_opened = message
                self._see_if_ready()
            case Started():
                # A slot is no progress yet: a model that dies of its first call would be started for ever.
                self._ledger.deliver(message)
            case _:
                self._progress()
                self._ledger.deliver(message)

    def died(self, reason: str, *, delay_s: float) -> None:
        log.error("the engine %s; starting it again in %g s", reason, delay_s)
        was_loading = self._engine_opened is None and self._view.state is EngineState.LOADING
        state = EngineState.LOADING if was_loading else EngineState.RESTARTING
        self._lose_engine(state, f"the engine {reason}")
        self._view = replace(self._view, deaths=self._view.deaths + 1)

    def refused(self, refusal: Refused) -> None:
        self._lose("\n".join(refusal.lines))

    def gave_up(self, reason: str, *, deaths: int) -> None:
        self._view = replace(self._view, deaths=self._view.deaths + 1)
        self._lose(
            f"the engine {reason} and died {deaths} times in a row without any progress; it is not started again"
        )

    # ---- inside: requests --------------------------------------------------------------------------------------------

    def _admit(self, request_id: str) -> Keeper:
        """Return the keeper to talk to, or raise the Failure that says why not."""
        keeper = self._ready_keeper()
        if request_id in self._ledger:
            raise ValueError(f"a request {request_id!r} is already open")
        slots = 0 if self._view.info is None else self._view.info.slots
        if len(self._ledger) >= slots + self._queue:
            message = f"{slots} requests are being answered and {self._queue} more are waiting; try again later"
            raise Failure("queue_full", message, retry_after_s=5)
        return keeper

    def _ready_keeper(self) -> Keeper:
        if self._parked is not None:
            raise self._parked.again()
        if self._view.state is not EngineState.READY or self._keeper is None:
            raise self._unready()
        return self._keeper

    def _unready(self) -> Failure:
        view = self._view
        match view.state:
            case EngineState.STOPPING:
                return Failure("shutting_down", f"the server is shutting down: {view.detail}")
            case EngineState.FAILED:
                return Failure("model_failed", f"{view.model} cannot be served: {view.detail}")
            case EngineState.UNLOADED:
                return Failure("model_not_loaded", "no model is loaded; load one with: optanectl load NAME")
        why = f" ({view.detail})" if view.detail else ""
        message = f"{view.model} is loading, {view.fraction:.0%} done{why}"
        return Failure("model_loading", message, retry_after_s=self._remaining_load_s())

    def _remaining_load_s(self) -> int:
        elapsed_s, fraction = self._clock() - self._loading_since_s, self._view.fraction
        remaining_s = elapsed_s * (1 - fraction) / fraction if fraction > 0 else elapsed_s
        return max(1, min(_MAX_RETRY_AFTER_S, round(remaining_s)))

    def _cancel(self, request_id: str) -> None:
        if self._keeper is not None:
            self._keeper.send(Cancel(request_id))

    def _listen(self, on: bool) -> None:  # noqa: FBT001  Trace's own field
        if self._keeper is not None:
            self._keeper.send(Trace(f"m{next(self._questions)}", on))

    def _progress(self) -> None:
        self._progress_s = self._clock()
        if self._keeper is not None:
            self._keeper.progressed()

    # ---- inside: children --------------------------------------------------------------------------------------------

    def _begin(self, state: EngineState, model: str | None, detail: str, *, failure: Failure | None = None) -> None:
        """Enter a state in which no answer is open and no engine is ready."""
        failure = failure or Failure("model_not_loaded", detail)
        self._lose_engine(state, detail, failure=failure)
        self._retire(failure)
        shown = "" if state is EngineState.LOADING else detail
        self._view = replace(self._view, model=model, detail=shown, vocabulary=None, chat_format="", placed=None)

    def _lose_engine(self, state: EngineState, detail: str, *, failure: Failure | None = None) -> None:
        self._engine_opened = None
        self._brake.detach()
        self._slots = Slots((), 0)
        self._view = replace(self._view, state=state, detail=detail, pid=None, info=None, fraction=0.0, residency=None)
        message = f"{detail}; it is being started again, please send the request again"
        failure = failure or Failure("engine_died", message, retry_after_s=1)
        self._ledger.fail_all(failure)
        self._tracers.fail_all(failure)

    def _lose(self, why: str) -> None:
        """Either child is gone for good: the model cannot be served."""
        log.error("%s cannot be served: %s", self._view.model, why)
        failure = Failure("model_failed", f"{self._view.model} cannot be served: {why}")
        self._lose_engine(EngineState.FAILED, why, failure=failure)
        self._retire(failure)
        self._spawn(self._switch(None))

    def _see_if_ready(self) -> None:
        engine, tokenizer = self._engine_opened, self.tokenizer.opened
        if tokenizer is not None:
            self._view = replace(self._view, vocabulary=tokenizer.vocabulary, chat_format=tokenizer.chat_format)
        if engine is not None and tokenizer is not None and self._view.state is not EngineState.READY:
            self._view = replace(self._view, state=EngineState.READY, info=engine.model, fraction=1.0, detail="")
            # The engine describes its slots when they change; until then all are idle.
            self._slots = Slots(tuple(SlotView(n) for n in range(engine.model.slots if engine.model else 0)), 0)
            log.info("%s is ready", self._view.model)

    def _retire(self, why: Failure) -> None:
        """Kill both children, and hear no more of them."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.kill()
        self._retired += [old for old in (keeper, self.tokenizer.retire(why)) if old is not None]

    async def _switch(self, spec: ModelSpec | None) -> None:
        """See the retired children gone before those of `spec` start: two models do not fit."""
        async with self._switching:
            retired, self._retired = self._retired, []
            await asyncio.gather(*(old.stop() for old in retired))
            # Something else may have been asked for meanwhile, or the same again.
            if spec is None or self._view.model != spec.name or self._view.state is not EngineState.LOADING:
                return
            if self._keeper is not None:
                return
            self.tokenizer.start(spec.open_tokenizer)
            self._keeper = Keeper(spec.open_engine, self, patience=self._patience)
            self._keeper.start()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
