"""Text to tokens and back through the library's vocabulary, loaded with or without weights.

Knows tokens, pieces and the vocabulary's own words about itself. Knows no context and no sampling.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from optaned.api import GrammarError, VocabularyInfo
from optaned_llamacpp.gbnf import check_gbnf
from optaned_llamacpp.grammar import open_grammar
from optaned_llamacpp.library import Library, address
from optaned_llamacpp.schema import schema_to_gbnf

_CONTROL, _USER_DEFINED, _UNKNOWN = 1 << 3, 1 << 4, 1 << 0
_PIECE_BYTES = 256


class LlamaVocabulary:
    """A model's vocabulary. `release` frees the model when the vocabulary was opened for itself."""

    def __init__(self, library: Library, model: int, release: Callable[[], None] | None = None) -> None:
        self._library = library
        self._release = release
        self.address = address(library.raw.llama_model_get_vocab(model))
        self.size: int = library.raw.llama_vocab_n_tokens(self.address)
        self._pieces: list[bytes | None] = [None] * self.size
        self._special_pieces: list[bytes | None] = [None] * self.size
        self._buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        self._ends = frozenset(t for t in range(self.size) if library.raw.llama_vocab_is_eog(self.address, t))
        self.info = self._describe(model)

    def _describe(self, model: int) -> VocabularyInfo:
        raw = self._library.raw
        template = raw.llama_model_chat_template(model, None)
        architecture = metadata(self._library, model, "general.architecture")
        # Without weights the library reads no hyperparameters, so the header is asked, not the model.
        context = metadata(self._library, model, f"{architecture}.context_length")
        return VocabularyInfo(
            size=self.size,
            bos=_token(raw.llama_vocab_bos(self.address)),
            eos=_token(raw.llama_vocab_eos(self.address)),
            eot=_token(raw.llama_vocab_eot(self.address)),
            add_bos=bool(raw.llama_vocab_get_add_bos(self.address)),
            template=template.decode("utf-8", errors="replace") if template else None,
            architecture=architecture,
            name=metadata(self._library, model, "general.name"),
            trained_context=int(context) if context.isdigit() else 0,
            special=self._special_tokens(),
        )

    def _special_tokens(self) -> dict[str, int]:
        attribute = self._library.raw.llama_vocab_get_attr
        marked = _CONTROL | _USER_DEFINED | _UNKNOWN
        tokens = (t for t in range(self.size) if attribute(self.address, t) & marked)
        return {self.piece(t, special=True).decode("utf-8", errors="replace"): t for t in tokens}

    @property
    def end(self) -> int:
        """The token that ends an answer when one must be made up: end of turn before end of text."""
        preferred = [t for t in (self.info.eot, self.info.eos) if t in self._ends]
        return next(iter(preferred), min(self._ends, default=0))

    @cached_property
    def suppressed(self) -> tuple[int, ...]:
        """Tokens that the model's own header says must never be generated."""
        count = ctypes.c_int32(0)
        tokens = self._library.raw.llama_vocab_get_suppress_tokens(self.address, ctypes.byref(count))
        return tuple(tokens[: count.value]) if count.value else ()

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        """Return token ids; lone surrogates become "?"."""
        data = text.encode("utf-8", errors="replace")
        capacity = len(data) + 2
        while True:
            tokens = (ctypes.c_int32 * capacity)()
            count = self._library.tokenize(self.address, data, len(data), tokens, capacity, bos, special)
            if count >= 0:
                return tokens[:count]
            capacity = -count

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return a token's bytes. Raises IndexError for a token that does not exist."""
        cache = self._special_pieces if special else self._pieces
        piece = cache[token]
        if piece is None:
            piece = cache[token] = self._read_piece(token, special=special)
        return piece

    def _read_piece(self, token: int, *, special: bool) -> bytes:
        size = self._library.token_to_piece(self.address, token, self._buffer, len(self._buffer), 0, special)
        if size < 0:
            self._buffer = ctypes.create_string_buffer(-size)
            size = self._library.token_to_piece(self.address, token, self._buffer, len(self._buffer), 0, special)
        return self._buffer.raw[:size]

    def is_end(self, token: int) -> bool:
        return token in self._ends

    def check_grammar(self, grammar: str) -> None:
        """Raise GrammarError unless this grammar compiles: read here first, since the library aborts on some."""
        open_grammar(self._library, self.address, grammar).close()

    def schema_grammar(self, schema: Mapping[str, Any]) -> str:
        """Return a GBNF grammar whose every sentence fits the schema. Raises GrammarError naming the path in it."""
        grammar = schema_to_gbnf(schema)
        try:
            check_gbnf(grammar)
        except GrammarError as error:
            raise GrammarError(f"schema: cannot be turned into a grammar: {error}") from error
        return grammar

    def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()


def metadata(library: Library, model: int, key: str) -> str:
    """Return a scalar of the GGUF header as text; "" when it has none."""
    buffer = ctypes.create_string_buffer(512)
    size = library.raw.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", errors="replace") if size >= 0 else ""


def _token(value: int) -> int | None:
    return value if value >= 0 else None
