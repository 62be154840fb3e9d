"""Drivers: inert declarations that plugins return, and the protocols of what a driver opens.

A plugin's hook returns `Driver`s; the TOML names one by `driver = "…"`; the core validates the table with the driver's own
`options` model and then calls `open(name, options, env)`. Nothing is chosen by load order, nothing runs at import. What
they get is in `env`, what tiers and policies open is in `tiers`; this file knows no hook and no plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from optaned.domain.generation import ModelInfo, Sampled, Sampling, VocabularyInfo
from optaned.domain.model import ModelIndex
from optaned.domain.thermal import Reading
from optaned.domain.tiers import Offload as Offload
from optaned.hooks.env import Completed as Completed
from optaned.hooks.env import Device as Device
from optaned.hooks.env import Env as Env
from optaned.hooks.tiers import ExpertStats as ExpertStats
from optaned.hooks.tiers import Movable as Movable
from optaned.hooks.tiers import Moved as Moved
from optaned.hooks.tiers import Mover as Mover
from optaned.hooks.tiers import Offloading as Offloading
from optaned.hooks.tiers import Pages as Pages
from optaned.hooks.tiers import PlacementPolicy as PlacementPolicy
from optaned.hooks.tiers import PlanRequest as PlanRequest
from optaned.hooks.tiers import Scores as Scores
from optaned.hooks.tiers import Tier as Tier


class Options(BaseModel):
    """Base of every driver's options: frozen, strict, unknown keys refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True)
class Needs:
    """What a driver touches, so that doctor can check it and a unit drop-in can open exactly that.

    `model_files` on a backend: a model without `files` is told as a fault of the configuration.
    """

    devices: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    network: bool = False
    model_files: bool = False


@dataclass(frozen=True)
class Driver:
    """One thing a plugin offers under `name`. `open(name, options, env)` makes it; `name` there is the TOML table's."""

    name: str
    options: type[BaseModel]
    open: Callable[[str, Any, Env], Any]
    summary: str = ""
    needs: Needs = Needs()
    nonblocking: bool = False


# ---- backends --------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One token to evaluate: at `position` of `slot`; `logits` asks for an output row."""

    token: int
    position: int
    slot: int
    logits: bool


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What a backend loads. `files` are the shards in order; `context` is tokens per slot; `threads` is already clamped."""

    files: tuple[Path, ...]
    context: int
    slots: int
    threads: int
    batch: int = 512
    kv_cache: str = "f16"
    index: ModelIndex | None = None
    offload: tuple[Offload, ...] = ()


class GrammarError(ValueError):
    """A grammar or JSON schema that cannot be compiled; the text is shown to the client."""


class DecodeAborted(Exception):  # noqa: N818  not an error: it was asked for
    """`should_abort` said yes. Nothing of this call counts as evaluated."""


class DecodeFailed(RuntimeError):  # noqa: N818  the pair of DecodeAborted
    """The library refused a decode call; nothing of this call counts as evaluated."""


class Vocabulary(Protocol):
    """Text to tokens and back, without weights. Used in the tokenizer process and beside a loaded model."""

    @property
    def info(self) -> VocabularyInfo: ...

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        """Return token ids. `special` reads control tokens spelled in the text; `bos` adds the begin token if wanted."""

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return a token's bytes (maybe a part of a UTF-8 character); control tokens are empty unless `special`."""

    def is_end(self, token: int) -> bool:
        """Say whether this token ends an answer."""

    def check_grammar(self, grammar: str) -> None:
        """Raise GrammarError unless this GBNF grammar compiles."""

    def schema_grammar(self, schema: Mapping[str, Any]) -> str:
        """Return a GBNF grammar for a JSON schema ({} is any JSON object). Raises GrammarError."""

    def close(self) -> None: ...


class Sampler(Protocol):
    """The sampling chain of one answer. It remembers the prompt and what it chose (penalties, grammar)."""

    def sample(self, output: int, *, position: int, top_logprobs: int | None) -> Sampled:
        """Choose from output row `output` of the last decode, accept the choice, and return it.

        `position` is the answer's token number: the random seed is derived from it, so that a resumed answer goes on as it
        would have. `top_logprobs` None computes no probability; n returns the n likeliest beside the chosen one.
        """

    def close(self) -> None: ...


class Model(Protocol):
    """A loaded model with its slots. One thread owns it; nothing here is thread-safe."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def vocabulary(self) -> Vocabulary: ...

    def decode(self, rows: Sequence[Row], *, should_abort: Callable[[], bool] | None = None) -> None:
        """Evaluate all rows in one call. Output rows are numbered 0, 1, … over the rows with `logits`, in order.

        Raises DecodeAborted or DecodeFailed; then the caller forgets the slots' cells with `cut`.
        """

    def sampler(self, sampling: Sampling, history: Sequence[int]) -> Sampler:
        """Return a fresh chain primed with `history` (the prompt and what was already answered). Raises GrammarError."""

    def cut(self, slot: int, length: int) -> bool:
        """Forget everything of `slot` from position `length` on. False where the model cannot (then cut to 0 always can)."""

    def close(self) -> None: ...


@runtime_checkable
class Embeds(Protocol):
    """A model that also gives sentence embeddings."""

    def embed(self, slot: int, tokens: Sequence[int], *, should_abort: Callable[[], bool] | None = None) -> list[float]:
        """Return the mean-pooled, L2-normalised embedding; uses and empties `slot`."""


@dataclass(frozen=True, slots=True)
class RouterChoice:
    """The experts that the router of `layer` chose for one token."""

    layer: int
    experts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RouterCounts:
    """How often each expert was chosen since the last call: uint32 arrays of shape (layers with experts, experts).

    Decode and prefill are counted apart; `tokens` and `prefill_tokens` are how many tokens they cover.
    """

    decode: Any
    prefill: Any
    tokens: int
    prefill_tokens: int


@runtime_checkable
class Tapped(Protocol):
    """A model whose router can be watched."""

    def take_choices(self) -> tuple[RouterChoice, ...]:
        """Return and forget the router's choices since the last call; kept only while `trace` is on."""

    def take_counts(self) -> RouterCounts:
        """Return and forget the counts since the last call. Callable from another thread than the owner's."""

    def trace(self, *, on: bool) -> None:
        """Keep each choice for `take_choices`, or stop keeping them."""


@runtime_checkable
class Mapped(Protocol):
    """A model that reads its weights from mappings of its files, in this process."""

    @property
    def mapped_files(self) -> tuple[Path, ...]:
        """Return the shards as they were opened, in the index's order."""


class Backend(Protocol):
    """A model library. It is opened in a child process; `vocabulary` must not read weights."""

    def vocabulary(self, files: Sequence[Path]) -> Vocabulary: ...

    def load(self, request: LoadRequest, progress: Callable[[float], bool]) -> Model:
        """Load and return a model. `progress(fraction)` returns False to give up. Raises OptanedError in one line."""

    def close(self) -> None: ...


@runtime_checkable
class Offloads(Protocol):
    """A backend that can place tensors on devices. `devices` is cheap, reads no weights and works in any process."""

    def devices(self) -> tuple[Device, ...]:
        """Return what this build of the library can use here; empty for a build for processors alone."""


# ---- chat formats ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a rendered prompt. `markup` may contain control tokens; user text (`markup` False) never becomes one."""

    text: str
    markup: bool


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation to render. Messages are plain dicts with `role` and text `content` (parts already joined)."""

    messages: tuple[Mapping[str, Any], ...]
    continue_assistant: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """New text of an answer, told apart."""

    content: str = ""
    reasoning: str = ""

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning)


class ChatError(ValueError):
    """A conversation that this format cannot render; the text is shown to the client (400)."""


class ChatParser(Protocol):
    """Splits one answer while it streams. Any cut of the text gives the same result."""

    def feed(self, text: str) -> ChatDelta: ...

    def finish(self) -> ChatDelta:
        """Return what was held back."""


class ChatFormat(Protocol):
    """A model family's conversation markup. `render` runs in the tokenizer process, parsers in the server."""

    def render(self, request: ChatRequest) -> tuple[Segment, ...]:
        """Return the prompt up to the point where the assistant speaks. Raises ChatError.

        The begin token is left out where the vocabulary's `add_bos` says that tokenising the first segment adds it.
        """

    def parser(self, rendered: str) -> ChatParser:
        """Return a parser for the answer to the prompt that was rendered as this text."""


@dataclass(frozen=True, slots=True)
class ChatSetting:
    """What a chat format's `open` needs beside its options: the vocabulary's own words about itself."""

    vocabulary: VocabularyInfo


# ---- the guard's drivers ---------------------------------------------------------------------------------------------


class Sensor(Protocol):
    """A source of temperatures. Runs in the guard's process group, never in the server."""

    def read(self) -> tuple[Reading, ...]:
        """Return one reading a point (a DIMM, a channel). Raises OSError when nothing can be read."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Driven:
    """What a cooler was told and what was read back, both 0 to 1; `read_back` None where the hardware cannot say."""

    demand: float
    read_back: float | None
    rpm: tuple[float, ...] = ()


class Cooler(Protocol):
    """Something that moves heat away. It is never handed back to firmware while hot."""

    def drive(self, demand: float) -> Driven:
        """Set the cooling demand, 0 (least) to 1 (full), and return what was read back. Raises OSError."""

    def release(self) -> None:
        """Leave the fans in the safe state: full."""
