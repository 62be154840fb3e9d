"""What the server and its children say to each other, as frozen records. Knows no socket and no process.

One frame is one message. `ToWorker` goes down, `FromWorker` comes up; both children speak the same language, the
tokenizer merely answers fewer questions. Answers to a request carry its `id`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from optaned.domain.generation import (
    FinishReason,
    ModelInfo,
    Sampling,
    SlotView,
    Timings,
    Usage,
    VocabularyInfo,
)


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of all messages: tagged by class name, encoded as an array (short frames)."""


class Role(enum.StrEnum):
    ENGINE = "engine"
    TOKENIZER = "tokenizer"


# ---- to a worker -----------------------------------------------------------------------------------------------------


class Open(_Message, frozen=True, kw_only=True):
    """First frame: what to be and what to load. Everything a child needs; it reads no configuration itself."""

    role: Role
    backend: str
    options: dict[str, Any]
    files: tuple[str, ...]
    context: int
    slots: int
    threads: int
    batch: int
    kv_cache: str
    chat_format: str = "auto"
    plugin_folder: str | None = None
    disabled_plugins: tuple[str, ...] = ()
    word_path: str | None = None


class Generate(_Message, frozen=True, kw_only=True):
    """Answer a prompt of token ids. `logprobs`: None for none, n for the n likeliest beside each chosen token."""

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...] = ()
    logprobs: int | None = None


class EmbedTokens(_Message, frozen=True):
    id: str
    tokens: tuple[int, ...]


class Cancel(_Message, frozen=True):
    """Stop a request, inside a prefill too. It ends with `Finished(reason=cancelled)`; unknown ids are ignored."""

    id: str


class Tokenize(_Message, frozen=True):
    id: str
    text: str
    special: bool
    bos: bool


class Detokenize(_Message, frozen=True):
    id: str
    tokens: tuple[int, ...]


class Render(_Message, frozen=True):
    """Render a conversation and tokenise it, markup and user text apart. Answered by `Rendered`."""

    id: str
    messages: tuple[Mapping[str, Any], ...]
    continue_assistant: bool = False
    template_kwargs: Mapping[str, Any] = {}


class CheckGrammar(_Message, frozen=True):
    id: str
    grammar: str


class SchemaGrammar(_Message, frozen=True):
    """Turn a JSON schema into a grammar ({} is any JSON object). Answered by `Text`."""

    id: str
    schema: Mapping[str, Any]


class Close(_Message, frozen=True):
    """Finish the step at hand and exit 0."""


ToWorker = (
    Open | Generate | EmbedTokens | Cancel | Tokenize | Detokenize | Render | CheckGrammar | SchemaGrammar | Close
)


# ---- from a worker ---------------------------------------------------------------------------------------------------


class Loading(_Message, frozen=True):
    fraction: float


class Opened(_Message, frozen=True):
    """Ready to answer. `model` is None in the tokenizer."""

    vocabulary: VocabularyInfo
    model: ModelInfo | None
    chat_format: str


class Refused(_Message, frozen=True):
    """Loading failed for a stated reason, one line each; trying again would not help."""

    lines: tuple[str, ...]
    exit_code: int


class Started(_Message, frozen=True):
    """A request got its slot."""

    id: str
    slot: int
    cached_tokens: int


class Prefilled(_Message, frozen=True):
    """Progress of a prompt: `done` of `total` tokens are evaluated (cached ones count as done)."""

    id: str
    done: int
    total: int


class Logprob(_Message, frozen=True):
    """A token's bytes and natural-log probability, and the likeliest alternatives, best first."""

    piece: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()


class Piece(_Message, frozen=True):
    """What one step added to one answer: token ids and the text that became certain (UTF-8 and stops may wait)."""

    id: str
    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[Logprob, ...] = ()


class Pieces(_Message, frozen=True):
    """All that one decode step produced, one frame a step."""

    pieces: tuple[Piece, ...]


class Finished(_Message, frozen=True):
    """The end of an answer; everything held back came in a `Piece` before. `stop` is the stop string that was met."""

    id: str
    reason: FinishReason
    usage: Usage
    timings: Timings
    stop: str | None = None


class Failed(_Message, frozen=True):
    """A request failed, the worker lives on. `code` is machine-readable (`grammar_invalid`, `chat_invalid`, …)."""

    id: str
    code: str
    message: str


class Embedding(_Message, frozen=True):
    id: str
    vector: tuple[float, ...]


class Tokens(_Message, frozen=True):
    id: str
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]


class Text(_Message, frozen=True):
    id: str
    text: str


class Rendered(_Message, frozen=True):
    """A rendered prompt as text and as tokens."""

    id: str
    text: str
    tokens: tuple[int, ...]


class Slots(_Message, frozen=True):
    """The slots after a change, and how many requests wait for one."""

    views: tuple[SlotView, ...]
    waiting: int


FromWorker = (
    Loading
    | Opened
    | Refused
    | Started
    | Prefilled
    | Pieces
    | Finished
    | Failed
    | Embedding
    | Tokens
    | Text
    | Rendered
    | Slots
)
