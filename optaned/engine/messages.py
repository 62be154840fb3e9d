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


class TierSpec(_Message, frozen=True, kw_only=True):
    """A tier that takes promoted bytes, with its driver's options and what this model may take of it."""

    name: str
    driver: str
    options: dict[str, Any]
    numa_node: int | None
    budget_bytes: int


class Promotion(_Message, frozen=True):
    """What shall be resident in a tier before the first answer: trunk tensors by index number, experts by flat number."""

    tier: str
    tensors: tuple[int, ...]
    experts: tuple[int, ...]


class Placement(_Message, frozen=True, kw_only=True):
    """The plan as the engine carries it out. `homes` says for each shard how it is reached, "byte" or "block", and
    `home_tiers` the name of the tier on which it lies; `devices` are tiers whose bytes the backend places while it loads.
    """

    digest: str
    homes: tuple[str, ...]
    tiers: tuple[TierSpec, ...]
    promotions: tuple[Promotion, ...]
    policy: str
    policy_options: dict[str, Any]
    move_gbps: float
    heat_path: str | None
    home_tiers: tuple[str, ...] = ()
    devices: tuple[TierSpec, ...] = ()


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
    placement: Placement | None = None


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


class Move(_Message, frozen=True):
    """Promote, demote, pin or unpin an expert by hand, or with `expert` None a whole layer.

    `do` is the verb. Answered by `Text` as soon as it is known that it can be done, or by `Failed`.
    """

    id: str
    do: str
    layer: int
    expert: int | None


class Trace(_Message, frozen=True):
    """Send each router choice up as `Choices`, or stop. Answered by `Text`."""

    id: str
    on: bool


class Close(_Message, frozen=True):
    """Finish the step at hand and exit 0."""


ToWorker = (
    Open
    | Generate
    | EmbedTokens
    | Cancel
    | Tokenize
    | Detokenize
    | Render
    | CheckGrammar
    | SchemaGrammar
    | Move
    | Trace
    | Close
)


# ---- from a worker ---------------------------------------------------------------------------------------------------


class Loading(_Message, frozen=True):
    """How far loading is, 0 to 1, and what takes the time, if that can be said."""

    fraction: float
    detail: str = ""


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


class TierUse(_Message, frozen=True, kw_only=True):
    """One tier's part in answering: bytes of this model there, moves so far, and its share of routed bytes read."""

    name: str
    budget_bytes: int
    trunk_bytes: int
    expert_bytes: int
    experts: int
    promoted_bytes_total: int = 0
    demoted_bytes_total: int = 0
    hit_bytes_total: int = 0


class Residency(_Message, frozen=True, kw_only=True):
    """What is resident where, about once a second while it changes. `skew` 0 is the uniform null, 1 a single expert.

    `smaps_bytes` is what the kernel says is anonymous memory within the model's mappings; `moving` says why experts
    move or do not, for people.
    """

    tiers: tuple[TierUse, ...]
    routed_bytes_total: int
    skew: float | None
    moving: str
    smaps_bytes: int | None = None
    move_gbps: float = 0.0


class Choices(_Message, frozen=True):
    """Router choices while tracing: (layer, expert ids) a layer of each token, token after token. No text, no token ids.

    A layer number that is not higher than the one before begins the next token.
    """

    choices: tuple[tuple[int, tuple[int, ...]], ...]


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
    | Residency
    | Choices
)
