"""Ask for one answer and show it while it comes. Shared by `run` and `chat`; knows no command line."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from optaned.cli.ctl.answer import Answer
from optaned.cli.ctl.daemon import Daemon
from optaned.cli.ctl.progress import describe
from optaned.cli.ctl.terminal import Terminal
from optaned.errors import OptanedError

PATIENCE_S = 0.5  # silence after which somebody at a terminal is told what happens


@dataclass(frozen=True)
class Question:
    """Messages and the sampling that was asked for; None leaves a choice to the daemon."""

    messages: Sequence[Mapping[str, str]]
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None

    def about(self, messages: Sequence[Mapping[str, str]]) -> Question:
        """Return the same choices for other messages."""
        return replace(self, messages=messages)

    @property
    def body(self) -> dict[str, Any]:
        optional = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }
        given = {name: value for name, value in optional.items() if value is not None}
        return {"messages": list(self.messages), "stream": True, "stream_options": {"include_usage": True}, **given}


class Asking:
    """One answer on its way to a terminal. Ctrl-C leaves `show` as KeyboardInterrupt; what came is in `answer`."""

    def __init__(self, daemon: Daemon, terminal: Terminal) -> None:
        self._daemon = daemon
        self._terminal = terminal
        self.answer = Answer(started_s=time.monotonic())
        self._next_look_s = self.answer.started_s + PATIENCE_S

    def show(self, question: Question) -> None:
        """Stream the answer. Leaving early closes the stream, which cancels the answer in the daemon."""
        try:
            with closing(self._daemon.stream("/v1/chat/completions", question.body)) as chunks:
                for chunk in chunks:
                    if chunk is None:
                        self._tell_why()
                    else:
                        self._add(chunk)
        finally:
            self._terminal.progress("")
            self._terminal.end_line()

    def _add(self, chunk: Mapping[str, Any]) -> None:
        was_thinking = bool(self.answer.reasoning) and not self.answer.content
        reasoning, content = self.answer.add(chunk, time.monotonic())
        self._terminal.write_aside(reasoning)
        if content and was_thinking:
            self._terminal.part()
        self._terminal.write(content)

    def _tell_why(self) -> None:
        now_s = time.monotonic()
        if not self._terminal.live or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + PATIENCE_S
        waited_s = now_s - (self.answer.last_s or self.answer.started_s)
        self._terminal.progress(f"{self._look()} · {waited_s:.0f} s")

    def _look(self) -> str:
        try:
            ready = self._daemon.ask("GET", "/ready").body
            slots = self._daemon.ask("GET", "/slots").body
        except OptanedError as error:
            return f"waiting ({error.lines[0]})"
        return describe(ready if isinstance(ready, dict) else {}, slots if isinstance(slots, list) else [])
