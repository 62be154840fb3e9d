"""Fakes of the ports behind the HTTP routes: an engine that says what it is told to, and a tokenizer of bytes.

They behave: refusals, cancellation, deaths and pauses are as with the real ones, without a process and without a model.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from optaned.domain.generation import (
    FinishReason,
    ModelInfo,
    SlotView,
    Timings,
    Usage,
    VocabularyInfo,
)
from optaned.domain.thermal import Level
from optaned.engine.messages import (
    Choices,
    Finished,
    Generate,
    Logprob,
    Piece,
    Prefilled,
    Rendered,
    Residency,
    Started,
    TierUse,
    Tokens,
)
from optaned.server.ports import EngineState, EngineView, Event, Failure, PauseView

_BOS = 256
VOCABULARY = VocabularyInfo(size=257, bos=_BOS, add_bos=True, architecture="fake", name="fake", trained_context=4096)
MODEL = ModelInfo(
    description="fake", context=512, slots=4, batch=64, embedding_size=4, parameters=7, embeds=True, library="fake 1"
)
RESIDENCY = Residency(
    tiers=(
        TierUse(
            name="dram0",
            budget_bytes=6000,
            trunk_bytes=1000,
            expert_bytes=500,
            experts=5,
            promoted_bytes_total=2000,
            demoted_bytes_total=500,
            hit_bytes_total=600,
        ),
        TierUse(name="disk", budget_bytes=0, trunk_bytes=0, expert_bytes=300, experts=3, hit_bytes_total=400),
    ),
    routed_bytes_total=1000,
    skew=0.25,
    moving="2 experts moved",
    smaps_bytes=1500,
    move_gbps=0.5,
)
LOADED = EngineView(
    state=EngineState.READY,
    model="fake",
    fraction=1.0,
    pid=4711,
    info=MODEL,
    vocabulary=VOCABULARY,
    chat_format="fake",
    slots=tuple(SlotView(number) for number in range(4)),
    residency=RESIDENCY,
)


_CODES = {
    EngineState.UNLOADED: "model_not_loaded",
    EngineState.LOADING: "model_loading",
    EngineState.RESTARTING: "model_loading",
    EngineState.FAILED: "model_failed",
    EngineState.STOPPING: "shutting_down",
}


def hello(request: Generate) -> Sequence[str]:
    """Answer JSON to a grammar, and a greeting with a multi-byte character to anything else."""
    return ('{"ok"', ": ", "true}") if request.sampling.grammar else ("Hello", ", ", "wörld", "!")


@dataclass
class FakeEngine:
    """An engine whose answers are `answer(request)`, a piece a token, `pace_s` apart.

    `gate` holds all answers before their first token while it is cleared; `dies_after` tokens every answer fails as if
    the process had died; `refuses` is raised by `submit`. `produced` counts all tokens made, `cancelled` names requests
    that were left.
    """

    answer: Callable[[Generate], Sequence[str]] = hello
    view: EngineView = LOADED
    pace_s: float = 0.0
    dies_after: int | None = None
    refuses: Failure | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[Generate] = field(default_factory=list)
    moves: list[tuple[str, int, int | None]] = field(default_factory=list)
    traces: list[FakeTrace] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    produced: int = 0
    open: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    def check_ready(self) -> None:
        """Raise the Failure that the view's state stands for."""
        code = _CODES.get(self.view.state)
        if code is not None:
            raise Failure(code, f"{code}: {self.view.detail}")

    def submit(self, request: Generate) -> AsyncIterator[Event]:
        """Start one answer."""
        self.check_ready()
        if self.refuses is not None:
            raise self.refuses
        self.requests.append(request)
        self.open += 1
        return _Answer(self, request)

    async def events(self, request: Generate) -> AsyncIterator[Event]:
        """Yield what the answer consists of."""
        prompt = len(request.prompt)
        yield Started(request.id, 0, 0)
        yield Prefilled(request.id, prompt // 2, prompt)
        await self.gate.wait()
        yield Prefilled(request.id, prompt, prompt)
        said, stop = _until_stop(self.answer(request), request.stop)
        shown = said[: request.max_tokens]
        for count, text in enumerate(shown):
            if count == self.dies_after:
                raise Failure("engine_died", "the engine died (signal 11); it starts again")
            await asyncio.sleep(self.pace_s)
            self.produced += 1
            yield Piece(request.id, (count,), text, _logprobs(text, request.logprobs))
        reason = FinishReason.STOP if len(shown) == len(said) else FinishReason.LENGTH
        usage = Usage(prompt, len(shown), 0)
        yield Finished(request.id, reason, usage, Timings(0.001, 0.01, 0.1), stop)

    async def embed(self, request_id: str, tokens: Sequence[int]) -> Sequence[float]:  # noqa: ARG002
        """Return a unit vector that depends on the tokens."""
        await self.gate.wait()
        raw = [1.0 + sum(tokens[n::4]) for n in range(4)]
        length = math.sqrt(sum(x * x for x in raw))
        return [x / length for x in raw]

    async def load(self, model: str) -> None:
        """Begin to load `model`."""
        self.view = replace(LOADED, state=EngineState.LOADING, model=model, info=None, fraction=0.25)

    async def unload(self) -> None:
        """Unload at once."""
        self.view = EngineView()

    async def move(self, do: str, layer: int, expert: int | None) -> str:
        """Say what would be done; layers from 10 on are not there."""
        self.check_ready()
        if layer >= 10:
            raise Failure("move_refused", f"layer {layer} has no experts")
        self.moves.append((do, layer, expert))
        return f"{do} {layer}"

    def trace(self) -> FakeTrace:
        """Begin a trace of what is put into the newest of `traces`."""
        self.check_ready()
        trace = FakeTrace()
        self.traces.append(trace)
        return trace


class FakeTrace:
    """A trace of what is put into `choices`; an exception there is raised. `left` once its route has gone."""

    def __init__(self) -> None:
        self.choices: asyncio.Queue[Choices | Exception] = asyncio.Queue()
        self.lost = 0
        self.left = False

    async def __anext__(self) -> Choices:
        found = await self.choices.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def aclose(self) -> None:
        self.left = True


class _Answer:
    """One running answer; `aclose` cancels it, whether it has been listened to or not."""

    def __init__(self, engine: FakeEngine, request: Generate) -> None:
        self._engine = engine
        self._request = request
        self._events = engine.events(request)
        self._over = False

    def __aiter__(self) -> _Answer:
        return self

    async def __anext__(self) -> Event:
        try:
            event = await anext(self._events)
        except (StopAsyncIteration, Failure):
            self._end()
            raise
        if isinstance(event, Finished):
            self._end()
        return event

    async def aclose(self) -> None:
        if not self._over:
            self._engine.cancelled.append(self._request.id)
            self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._engine.open -= 1


def _until_stop(pieces: Sequence[str], stops: Sequence[str]) -> tuple[list[str], str | None]:
    text = "".join(pieces)
    met = min((stop for stop in stops if stop in text), key=text.find, default=None)
    if met is None:
        return list(pieces), None
    return [text[: text.find(met)]], met


def _logprobs(text: str, top: int | None) -> tuple[Logprob, ...]:
    if top is None:
        return ()
    return (Logprob(text.encode(), -0.5, tuple((b"x%d" % n, -1.0 - n) for n in range(top))),)


@dataclass
class FakeTokenizer:
    """One token a byte. Conversations render as `<role>text` lines; a schema's grammar is `root ::= json`."""

    rendered: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    async def tokenize(self, text: str, *, special: bool, bos: bool) -> Tokens:  # noqa: ARG002
        raw = text.encode()
        head = (_BOS,) if bos else ()
        return Tokens("", (*head, *raw), (*(b"" for _ in head), *(bytes([byte]) for byte in raw)))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < _BOS).decode("utf-8", "replace")

    async def render(
        self, messages: Sequence[Mapping[str, Any]], *, continue_assistant: bool, template_kwargs: Mapping[str, Any]
    ) -> Rendered:
        self.rendered.append(messages)
        self.kwargs = template_kwargs
        if any(message["role"] == "tool" for message in messages):
            raise Failure("chat_invalid", "this format knows no tools")
        text = "".join(f"<{message['role']}>{message['content']}\n" for message in messages)
        text += "" if continue_assistant else "<assistant>"
        return Rendered("", text, (_BOS, *text.encode()))

    async def check_grammar(self, grammar: str) -> None:
        if not grammar.startswith("root ::="):
            raise Failure("grammar_invalid", "the grammar has no root")

    async def schema_grammar(self, schema: Mapping[str, Any]) -> str:
        if schema.get("type") == "nonsense":
            raise Failure("grammar_invalid", "there is no type nonsense")
        return "root ::= json"


@dataclass
class FakePause:
    """What heat does; set `view` to heat up."""

    view: PauseView = field(default_factory=lambda: PauseView(Level.COOL, 1.0, "", False, 0.0, 0.1))  # noqa: FBT003
