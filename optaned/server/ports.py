"""What the HTTP routes need from the rest of the server, as protocols and frozen views. Knows no HTTP and no process.

Views are plain attributes, never a question to a child: that is why control routes answer while the engine is busy,
loading or stopped.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from optaned.domain.generation import ModelInfo, SlotView, VocabularyInfo
from optaned.domain.model import ModelIndex
from optaned.domain.thermal import Level
from optaned.domain.tiers import PlacementPlan, TierInfo
from optaned.engine.messages import Choices, Finished, Generate, Piece, Prefilled, Rendered, Residency, Started, Tokens


class Failure(Exception):  # noqa: N818  read as "a failure of the engine", with its code
    """Why a request could not be answered, in words for the client and a machine-readable code.

    Codes: `queue_full`, `model_loading`, `model_not_loaded`, `model_failed`, `engine_died`, `thermal_trip`,
    `shutting_down`, `context_length_exceeded`, `prompt_empty`, `token_invalid`, `grammar_invalid`, `chat_invalid`,
    `embeddings_unsupported`, `decode_failed`, `cancelled`, `move_refused`, `trace_unsupported`, `engine_paused`.
    """

    def __init__(self, code: str, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    def again(self) -> Failure:
        """Return an equal failure, for another request: an exception instance is raised once."""
        return Failure(self.code, self.message, retry_after_s=self.retry_after_s)


class EngineState(enum.StrEnum):
    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Placed:
    """What was decided for a model before it was loaded; `tiers` as they were probed, its homes among them."""

    policy: str
    tiers: tuple[TierInfo, ...]
    index: ModelIndex
    plan: PlacementPlan


@dataclass(frozen=True, slots=True)
class EngineView:
    """The engine as the server knows it right now. `fraction` is the load's progress; `detail` says why, in one line.

    `placed` is None without a model and for one without files; `residency` until the engine has said what is where.
    """

    state: EngineState = EngineState.UNLOADED
    model: str | None = None
    fraction: float = 0.0
    detail: str = ""
    pid: int | None = None
    deaths: int = 0
    info: ModelInfo | None = None
    vocabulary: VocabularyInfo | None = None
    chat_format: str = ""
    slots: tuple[SlotView, ...] = ()
    waiting: int = 0
    active: int = 0
    prompt_tokens_total: int = 0
    cached_tokens_total: int = 0
    completion_tokens_total: int = 0
    requests_total: int = 0
    prefill_s_total: float = 0.0
    decode_s_total: float = 0.0
    last_progress_age_s: float | None = None
    placed: Placed | None = None
    residency: Residency | None = None


@dataclass(frozen=True, slots=True)
class PauseView:
    """What heat does to the engine right now. `reason` is for people: "dimm 2 at 79 °C", "the guard is silent".

    `since_s` is when level or pause last changed, on the monotonic clock.
    """

    level: Level | None
    duty: float
    reason: str
    paused: bool
    since_s: float
    word_age_s: float | None


Event = Started | Prefilled | Piece | Finished


class TracePort(Protocol):
    """A running trace. `lost` counts the choices that a slow listener has missed."""

    lost: int

    async def __anext__(self) -> Choices: ...

    async def aclose(self) -> None: ...


class EnginePort(Protocol):
    """The loaded model. `submit` and `embed` raise `Failure`; so does iterating an answer when the engine dies."""

    @property
    def view(self) -> EngineView: ...

    def check_ready(self) -> None:
        """Raise the Failure that `submit` would raise now for want of a model, before a prompt is worked on."""

    def submit(self, request: Generate) -> AsyncIterator[Event]:
        """Start answering at once; raises Failure at once when it cannot be. Leaving the iterator (`aclose`) cancels."""

    async def embed(self, request_id: str, tokens: Sequence[int]) -> Sequence[float]: ...

    async def load(self, model: str) -> None:
        """Begin to load a declared model (unloading the present one); returns when it has begun. KeyError if unknown."""

    async def unload(self) -> None: ...

    async def move(self, do: str, layer: int, expert: int | None) -> str:
        """Promote, demote, pin or unpin by hand; return what will be done, in words. Raises Failure."""

    def trace(self) -> TracePort:
        """Return the router's choices from now on; raises Failure at once, and while iterating when the engine ends."""


class TokenizerPort(Protocol):
    """The vocabulary of the selected model; answers while the engine loads, prefills or stands still."""

    async def tokenize(self, text: str, *, special: bool, bos: bool) -> Tokens: ...

    async def detokenize(self, tokens: Sequence[int]) -> str: ...

    async def render(
        self, messages: Sequence[Mapping[str, Any]], *, continue_assistant: bool, template_kwargs: Mapping[str, Any]
    ) -> Rendered: ...

    async def check_grammar(self, grammar: str) -> None: ...

    async def schema_grammar(self, schema: Mapping[str, Any]) -> str: ...


class PausePort(Protocol):
    @property
    def view(self) -> PauseView: ...
