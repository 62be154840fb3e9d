"""Bytes of tokens become text as soon as it is certain. Knows UTF-8 and stop strings; knows no token, slot or request.

Text is held back while it may still be the beginning of a stop string, bytes while they are a part of a character.
However the bytes are cut, the same text comes out.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

_new_decoder = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """One answer's text. Once `stopped` names a stop string nothing more comes out."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = _new_decoder(errors="replace")
        self._held = ""
        self.stopped: str | None = None

    def feed(self, piece: bytes) -> str:
        """Take a token's bytes and return the text that became certain (maybe none)."""
        text = self._decoder.decode(piece)
        return self._release(text) if self._stops else text

    def finish(self) -> str:
        """Return what was held back; a character that never became whole is U+FFFD."""
        text = self._decoder.decode(b"", final=True)
        if not self._stops:
            return text
        text = self._release(text)
        if self.stopped is None:
            text += self._held
        self._held = ""
        return text

    def _release(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        text = self._held + text
        found = first_stop(text, self._stops)
        if found is not None:
            start, self.stopped = found
            self._held = ""
            return text[:start]
        keep = len(text) - longest_beginning(text, self._stops)
        self._held = text[keep:]
        return text[:keep]


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    """Return where the first stop string begins, and which one it is.

    First is the one that is complete first, as if the text came character by character; of several that end together it
    is the longest. Only this order does not depend on how the text was cut.
    """
    found = [(start + len(stop), start, stop) for stop in stops if (start := text.find(stop)) >= 0]
    if not found:
        return None
    _, start, stop = min(found)
    return start, stop


def longest_beginning(text: str, stops: Sequence[str]) -> int:
    """Return the length of the longest end of `text` with which a stop string begins."""
    longest = 0
    for stop in stops:
        for length in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:length]):
                longest = length
                break
    return longest
