"""The table `[engine.echo]`. Knows what can be asked of the echo, not how it is done."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from optaned.api import Options, Seconds


class EchoEvent(Options):
    """Something that happens in every answer, just before token number `at` is chosen."""

    do: Literal["crash", "exit", "stall", "fail"]
    """crash: die of a signal; exit: end with a status; stall: stand still; fail: refuse this answer's next call."""

    at: int = Field(ge=0)
    """Number of the token before which it happens; 0 is the first."""

    value: float = 0.0
    """Signal number, exit status or seconds."""


class EchoOptions(Options):
    """How slow, how limited and how unreliable the echo is."""

    token_delay_s: Seconds = 0.0
    """Time that one decode call takes, however many answers it serves."""

    prefill_delay_s_per_token: Seconds = 0.0
    """Time that one prompt token takes; such a call can be aborted."""

    load_delay_s: Seconds = 0.0
    """Time that loading takes."""

    load_crash: int = Field(default=0, ge=0, le=64)
    """Signal of which the engine dies in the middle of loading; 0 for none."""

    load_error: str = ""
    """Text with which loading is refused; empty to load."""

    can_cut: bool = True
    """Whether a slot can forget its tail, like an attention model; false behaves like a hybrid one."""

    trained_context: int = Field(default=32768, ge=1)
    """Context that the vocabulary claims to be trained for, in tokens."""

    embedding_size: int = Field(default=16, ge=1, le=4096)
    """Numbers in an embedding."""

    layers: int = Field(default=0, ge=0)
    """Layers with a router; 0 for a dense model."""

    experts: int = Field(default=8, ge=1)
    """Experts of each such layer."""

    experts_used: int = Field(default=2, ge=1)
    """Experts that the router chooses for one token."""

    grammar_answer: str | None = None
    """The answer whenever a grammar is set; by default the smallest document that fits the JSON schema, or {}."""

    script: tuple[EchoEvent, ...] = ()
    """Events of every answer."""
