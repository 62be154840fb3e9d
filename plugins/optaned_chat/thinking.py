"""Tells an answer's `<think>` section from its content while it streams. Knows no template and no token.

Only a section at the very start is reasoning: an answer that explains what `<think>` means stays content.
"""

from __future__ import annotations

import enum

from optaned.api import ChatDelta

OPEN, CLOSE = "<think>", "</think>"


class _At(enum.Enum):
    START = "start"  # an opening tag may still come; white space is held back
    REASONING = "reasoning"
    AFTER = "after"  # newlines between the section and the content are dropped
    CONTENT = "content"


class ThinkParser:
    """Parser of one answer. `opened`: the prompt itself already ends inside a section."""

    def __init__(self, *, opened: bool) -> None:
        self._opened = opened
        self._at = _At.START
        self._held = ""
        self._newlines = ""  # of reasoning: kept only if more reasoning follows
        self._has_reasoning = False

    def feed(self, text: str) -> ChatDelta:
        """Return what became certain with `text`."""
        self._held += text
        content, reasoning = "", ""
        while self._held:
            at = self._at
            if at is _At.START:
                self._start()
            elif at is _At.REASONING:
                reasoning += self._reason()
            elif at is _At.AFTER:
                self._skip_newlines()
            else:
                content, self._held = content + self._held, ""
            if self._at is at:
                break
        return ChatDelta(content, reasoning)

    def finish(self) -> ChatDelta:
        """Return what was held back. A section that never closed is reasoning to its end."""
        held, self._held = self._held, ""
        if self._at is _At.REASONING or (self._at is _At.START and self._opened):
            return ChatDelta(reasoning=self._trim(held))
        return ChatDelta(content=held)

    def _start(self) -> None:
        text = self._held.lstrip()
        if text.startswith(OPEN):
            self._at, self._held = _At.REASONING, text[len(OPEN) :]
        elif not OPEN.startswith(text):
            self._at = _At.REASONING if self._opened else _At.CONTENT

    def _reason(self) -> str:
        before, closed, after = self._held.partition(CLOSE)
        if closed:
            self._at, self._held = _At.AFTER, after
            return self._trim(before)
        size = _overlap(before, CLOSE)
        self._held = before[len(before) - size :]
        return self._trim(before[: len(before) - size])

    def _trim(self, text: str) -> str:
        """Return reasoning without newlines at its start, and with those at its end held back."""
        text = self._newlines + text if self._has_reasoning else text.lstrip("\n")
        certain = text.rstrip("\n")
        self._newlines = text[len(certain) :]
        self._has_reasoning = self._has_reasoning or bool(certain)
        return certain

    def _skip_newlines(self) -> None:
        self._held = self._held.lstrip("\r\n")
        if self._held:
            self._at = _At.CONTENT


def ends_inside(rendered: str, turn_end: str) -> bool:
    """Say whether a rendered prompt ends in an opened section.

    `turn_end` is what the template writes between a user's text and the answer. A `<think>` that a user typed is
    followed by it, so it opens nothing; one in an assistant message that is to be continued is not.
    """
    if OPEN not in rendered:
        return False
    tail = rendered[rendered.rindex(OPEN) + len(OPEN) :]
    if not tail.strip():
        return True
    return CLOSE not in tail and bool(turn_end) and turn_end not in tail


def _overlap(text: str, tag: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `tag`."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-size:])), 0)
