"""A compiled grammar that follows one answer. Knows the library's grammar sampler; knows no sampling parameters.

The library aborts the process when a token is accepted that its grammar refuses, so every token is asked about first.
"""

from __future__ import annotations

from optaned.api import GrammarError
from optaned_llamacpp.candidates import Candidates
from optaned_llamacpp.gbnf import check_gbnf
from optaned_llamacpp.library import Library, address


class Grammar:
    """Which tokens may come next. `close` frees it."""

    def __init__(self, library: Library, sampler: int) -> None:
        self._library = library
        self._sampler = sampler

    def allows(self, token: int, scratch: Candidates) -> bool:
        """Say whether this token may come next; overwrites `scratch`."""
        scratch.fill_one(token)
        scratch.apply(self._sampler)
        return scratch.drop_impossible() == 1

    def mask(self, candidates: Candidates) -> int:
        """Remove all tokens that may not come next and return how many are left; takes milliseconds."""
        candidates.apply(self._sampler)
        return candidates.drop_impossible()

    def accept(self, token: int) -> None:
        """Go on behind this token, which must be allowed."""
        self._library.accept(self._sampler, token)

    def close(self) -> None:
        sampler, self._sampler = self._sampler, 0
        if sampler:
            self._library.free_sampler(sampler)


def open_grammar(library: Library, vocabulary: int, text: str) -> Grammar:
    """Compile a GBNF grammar whose start is `root`. Raises GrammarError with the reason."""
    check_gbnf(text)
    with library.log.listen() as heard:
        sampler = address(library.raw.llama_sampler_init_grammar(vocabulary, text.encode(), b"root"))
    if not sampler:
        reason = "; ".join(heard) or "no reason given"
        raise GrammarError(f"grammar: llama.cpp cannot compile it: {reason}")
    return Grammar(library, sampler)
