"""What a client asks of a model and what comes back, token by token. Knows no HTTP, no process and no backend."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Neutral values switch a stage off; temperature 0 is greedy.

    The defaults are those that users of local servers know: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: str | None = None
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature <= 0 and self.mirostat == 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token with the natural logarithm of its probability and the likeliest alternatives, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token; `logprob` only where the request asked for it."""

    token: int
    logprob: TokenLogprob | None = None


class FinishReason(enum.StrEnum):
    """Why an answer ended. `stop` and `length` are complete answers; the others never look like one."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. `cached_tokens` of the prompt were reused and not computed again."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one answer went, in seconds of wall time."""

    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class SlotState(enum.StrEnum):
    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot as people may see it: no text, no tokens."""

    slot: int
    state: SlotState = SlotState.IDLE
    request: str | None = None
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class VocabularyInfo:
    """What a vocabulary says about itself.

    `special` maps each control token's spelling to its id; `template` is the GGUF's own chat template (Jinja), if any.
    """

    size: int
    bos: int | None = None
    eos: int | None = None
    eot: int | None = None
    add_bos: bool = False
    template: str | None = None
    architecture: str = ""
    name: str = ""
    trained_context: int = 0
    special: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model offers. `context` is tokens per slot; `can_cut` says whether a slot can forget its tail."""

    description: str
    context: int
    slots: int
    batch: int
    embedding_size: int
    parameters: int = 0
    size_bytes: int = 0
    can_cut: bool = True
    embeds: bool = False
    threads: int = 0
    library: str = ""
