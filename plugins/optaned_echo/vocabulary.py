"""Bytes as tokens, and four control tokens. Characters beyond ASCII are therefore always split over several tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from optaned.api import GrammarError, VocabularyInfo

BEGIN, END, START_TURN, END_TURN = range(256, 260)
SPECIAL = {"<|begin|>": BEGIN, "<|end|>": END, "<|im_start|>": START_TURN, "<|im_end|>": END_TURN}

# ChatML, so that the chat format which reads a model's own template works with the echo too.
TEMPLATE = (
    "{%- for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)

SCHEMA_MARK = "# schema: "

_PIECES = [bytes([byte]) for byte in range(256)] + [b""] * len(SPECIAL)
_SPELLED = [bytes([byte]) for byte in range(256)] + [spelling.encode() for spelling in SPECIAL]
_SPELLINGS = re.compile("(" + "|".join(re.escape(spelling) for spelling in SPECIAL) + ")")
_ROOT = re.compile(r"^\s*root\s*::=\s*\S", re.MULTILINE)
_SCHEMA_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}


class EchoVocabulary:
    """One token a byte."""

    def __init__(self, trained_context: int) -> None:
        self._info = VocabularyInfo(
            size=len(_PIECES),
            bos=BEGIN,
            eos=END,
            eot=END_TURN,
            template=TEMPLATE,
            architecture="echo",
            name="echo",
            trained_context=trained_context,
            special=dict(SPECIAL),
        )

    @property
    def size(self) -> int:
        return len(_PIECES)

    @property
    def info(self) -> VocabularyInfo:
        return self._info

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:  # noqa: ARG002  it wants no begin token
        tokens: list[int] = []
        for part in _SPELLINGS.split(text) if special else [text]:
            if special and part in SPECIAL:
                tokens.append(SPECIAL[part])
            else:
                tokens += part.encode(errors="replace")
        return tokens

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return _SPELLED[token] if special else _PIECES[token]

    def is_end(self, token: int) -> bool:
        return token in (END, END_TURN)

    def check_grammar(self, grammar: str) -> None:
        """Accept whatever has a root rule: the echo follows no grammar, it only answers with a document that fits."""
        if _ROOT.search(grammar) is None:
            raise GrammarError("the grammar has no rule named root")

    def schema_grammar(self, schema: Mapping[str, Any]) -> str:
        """Return a grammar that carries its schema in a comment, where the sampler finds it again."""
        kind = schema.get("type", "object")
        if not isinstance(kind, (str, list)) or not _SCHEMA_TYPES.issuperset([kind] if isinstance(kind, str) else kind):
            raise GrammarError(f"unknown type {kind!r} in the schema")
        return f"{SCHEMA_MARK}{json.dumps(schema)}\nroot ::= value\n"

    def close(self) -> None:
        """Nothing to free."""


def plain_text(tokens: Sequence[int]) -> str:
    """Return the text of the byte tokens among `tokens`."""
    return bytes([token for token in tokens if token < BEGIN]).decode(errors="replace")
