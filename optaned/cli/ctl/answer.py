"""One streamed answer: what a chunk adds, and how fast it came. Knows no terminal and no socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Answer:
    """What came so far. Times are seconds of one clock."""

    started_s: float
    content: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_s: float | None = None
    last_s: float | None = None
    decode_tokens_per_s: float | None = None

    def add(self, chunk: Mapping[str, Any], now_s: float) -> tuple[str, str]:
        """Take in one chunk; return the (reasoning, content) that it adds."""
        self._count(chunk.get("usage") or {})
        self.decode_tokens_per_s = (chunk.get("timings") or {}).get("predicted_per_second") or self.decode_tokens_per_s
        choices = chunk.get("choices") or []
        if not choices:
            return "", ""
        self.finish_reason = choices[0].get("finish_reason") or self.finish_reason
        delta = choices[0].get("delta") or {}
        reasoning, content = delta.get("reasoning_content") or "", delta.get("content") or ""
        if reasoning or content:
            self.first_s = now_s if self.first_s is None else self.first_s
            self.last_s = now_s
            self.reasoning += reasoning
            self.content += content
        return reasoning, content

    @property
    def tokens_per_s(self) -> float | None:
        """The daemon's own figure; without one, what was seen from the first token to the last."""
        if self.decode_tokens_per_s is not None:
            return self.decode_tokens_per_s
        if self.first_s is None or self.last_s is None or self.completion_tokens < 2 or self.last_s <= self.first_s:
            return None
        return (self.completion_tokens - 1) / (self.last_s - self.first_s)

    @property
    def summary(self) -> str:
        """The line under an answer: tokens and speed."""
        speed = f", {self.tokens_per_s:.1f} tokens/s" if self.tokens_per_s is not None else ""
        cut = " (stopped at the token limit)" if self.finish_reason == "length" else ""
        return f"{self.completion_tokens} tokens{speed}{cut}"

    def timings(self, now_s: float) -> tuple[str, ...]:
        """Return what `--verbose` prints, one figure a line."""
        first = "none came" if self.first_s is None else f"after {self.first_s - self.started_s:.2f} s"
        speed = "unknown" if self.tokens_per_s is None else f"{self.tokens_per_s:.1f} tokens/s"
        return (
            f"prompt       {self.prompt_tokens} tokens, {self.cached_tokens} of them reused",
            f"first token  {first}",
            f"answer       {self.completion_tokens} tokens, {speed}",
            f"total        {now_s - self.started_s:.2f} s, finish reason {self.finish_reason}",
        )

    def _count(self, usage: Mapping[str, Any]) -> None:
        self.prompt_tokens = usage.get("prompt_tokens") or self.prompt_tokens
        self.completion_tokens = usage.get("completion_tokens") or self.completion_tokens
        details = usage.get("prompt_tokens_details") or {}
        self.cached_tokens = details.get("cached_tokens") or self.cached_tokens
