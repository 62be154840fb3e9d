"""A real vocabulary in 300 tokens: byte-level BPE, so that any text and any bytes survive a round trip.

The 256 bytes come first, then a few merges (so that tokens are not all one byte long), then ChatML's control tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_MERGES = (
    *("h e", "i n", "e r", "a n", "o n", "r e", "t h", "Ġ t", "Ġ a", "Ġ s", "t he", "Ġt he", "an d", "Ġ and"),
    *(
        "in g",
        "e s",
        "o r",
        "Ġ o",
        "Ġo f",
        "Ġ in",
        "e d",
        "s t",
        "e n",
        "Ġt o",
        "l l",
        "o u",
        "Ġ w",
        "i s",
        "Ġ b",
        "Ġ c",
    ),
)
_NORMAL, _CONTROL = 1, 3


@dataclass(frozen=True)
class TinyVocabulary:
    """Spellings by token id, their GGUF types (1 normal, 3 control), and the merges in order of rank."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.tokens)

    def id(self, spelling: str) -> int:
        """Return a token's id. Raises ValueError when there is none."""
        return self.tokens.index(spelling)


def tiny_vocabulary() -> TinyVocabulary:
    """Return the vocabulary that every tiny model carries."""
    plain = [*_byte_letters(), *(merge.replace(" ", "") for merge in _MERGES)]
    types = [_NORMAL] * len(plain) + [_CONTROL] * len(CONTROL_TOKENS)
    return TinyVocabulary((*plain, *CONTROL_TOKENS), tuple(types), _MERGES)


def _byte_letters() -> list[str]:
    """Return the letter that byte-level BPE writes for each byte: itself if printable, else one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
