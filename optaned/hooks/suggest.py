"""Guess what a mistyped name was meant to be. Knows no list of its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)", or "" when nothing known is close to `name`."""
    by_fold = {k.casefold(): k for k in sorted(known)}
    close = difflib.get_close_matches(name.casefold(), by_fold, n=1, cutoff=0.6)
    return f" (did you mean {by_fold[close[0]]!r}?)" if close else ""
