"""Keeps control tokens that somebody typed in a message from becoming control tokens. Knows no template.

Before rendering, each such spelling in message text is replaced by one private-use character, which survives trimming,
joining and `tojson`; after rendering the text is cut at those characters, and they come back as segments that are not
markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from optaned.api import ChatError, Segment

_PRIVATE = range(0xF0000, 0xFFFFE)
_PRIVATE_CHARS = re.compile(r"[\U000F0000-\U000FFFFD]")


class Shield:
    """The placeholders of one conversation; `used` are private-use characters that are already in its texts."""

    def __init__(self, special: Iterable[str], used: frozenset[str] = frozenset()) -> None:
        spellings = sorted(filter(None, special), key=len, reverse=True)
        self._spelling = re.compile("|".join(map(re.escape, spellings))) if spellings else None
        self._beginnings = {spelling[:end] for spelling in spellings for end in range(1, len(spelling))}
        self._longest = max(map(len, spellings), default=0)
        self._free = (char for char in map(chr, _PRIVATE) if char not in used)
        self._placeholder: dict[str, str] = {}

    def fresh(self) -> str:
        """Return a character that is in no text of this conversation."""
        char = next(self._free, None)
        if char is None:
            raise ChatError("the messages use up all private-use characters, which are needed to render them safely")
        return char

    def cover(self, value: Any, *, keep: frozenset[str] = frozenset()) -> Any:
        """Return `value` (text, list or mapping, deep) with control-token spellings covered, except those in `keep`."""
        if isinstance(value, str):
            return self._cover_text(value, keep)
        if isinstance(value, Mapping):
            return {self._cover_text(key, keep): self.cover(inner, keep=keep) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.cover(inner, keep=keep) for inner in value]
        return value

    def split(self, rendered: str) -> tuple[Segment, ...]:
        """Return the rendered text as segments: markup between placeholders, covered spellings as plain text."""
        spellings = {char: spelling for spelling, char in self._placeholder.items()}
        if not spellings:
            return (Segment(rendered, markup=True),) if rendered else ()
        pieces = re.split(f"([{''.join(spellings)}]+)", rendered)
        return tuple(_segment(piece, spellings) for piece in pieces if piece)

    def _cover_text(self, text: str, keep: frozenset[str]) -> str:
        if self._spelling is None:
            return text
        text = self._spelling.sub(lambda found: found[0] if found[0] in keep else self._hide(found[0]), text)
        return self._cover_beginning(text)

    def _cover_beginning(self, text: str) -> str:
        """Cover an unfinished spelling at the end: a template that joins texts could complete it."""
        body = text.rstrip()
        for size in range(min(self._longest, len(body)), 0, -1):
            if body[-size:] in self._beginnings:
                return body[:-size] + self._hide(body[-size:]) + text[len(body) :]
        return text

    def _hide(self, spelling: str) -> str:
        if spelling not in self._placeholder:
            self._placeholder[spelling] = self.fresh()
        return self._placeholder[spelling]


def private_chars(value: Any) -> frozenset[str]:
    """Return the private-use characters in `value`, however deep."""
    if isinstance(value, str):
        return frozenset(_PRIVATE_CHARS.findall(value))
    if isinstance(value, Mapping):
        return frozenset().union(*(private_chars(part) for pair in value.items() for part in pair))
    if isinstance(value, list | tuple):
        return frozenset().union(*map(private_chars, value))
    return frozenset()


def _segment(piece: str, spellings: Mapping[str, str]) -> Segment:
    if piece[0] in spellings:
        return Segment("".join(spellings[char] for char in piece), markup=False)
    return Segment(piece, markup=True)
