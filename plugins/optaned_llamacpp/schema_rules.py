"""The rules of a grammar while it grows: names, shared JSON rules, repetition. Knows GBNF; knows no schema."""

from __future__ import annotations

import re

from optaned.api import GrammarError
from optaned_llamacpp.numbers import INTEGER, NUMBER

_MOST_RULES = 4000
_BLOCK, _LONGEST = 1000, 100_000

SHARED = {
    # One line break and bounded indentation: a small model left alone with `ws*` writes blanks until it is stopped.
    "ws": '( " " | "\\n" [ \\t]{0,20} )?',
    "char": r'[^"\\\x00-\x1f\x7f] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} )',
    "string": r'"\"" char* "\""',
    "integer": INTEGER,
    "number": NUMBER,
    "boolean": '"true" | "false"',
    "null": '"null"',
    "member": 'string ":" ws value ws',
    "object": '"{" ws ( member ( "," ws member )* )? "}"',
    "array": '"[" ws ( value ws ( "," ws value ws )* )? "]"',
    "value": "object | array | string | number | boolean | null",
}


class Rules:
    """Named rules; `SHARED` ones are always there."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}

    def text(self) -> str:
        """Return the whole grammar."""
        return "\n".join(f"{name} ::= {body}" for name, body in {**self._bodies, **SHARED}.items()) + "\n"

    def reserve(self, hint: str) -> str:
        """Return a free name like `hint`; its body is set later. Raises GrammarError when there are too many."""
        base = re.sub(r"[^A-Za-z0-9]+", "-", hint)[:40].strip("-") or "rule"
        name, number = base, 1
        while name in self._bodies or name in SHARED:
            number += 1
            name = f"{base}-{number}"
        if len(self._bodies) >= _MOST_RULES:
            raise GrammarError(f"schema: needs more than {_MOST_RULES} rules")
        self._bodies[name] = '""'
        return name

    def set(self, name: str, body: str) -> None:
        self._bodies[name] = body

    def add(self, hint: str, body: str) -> str:
        """Add a rule and return its name."""
        name = self.reserve(hint)
        self._bodies[name] = body
        return name

    def add_once(self, name: str, body: str) -> str:
        """Add a rule that several places share."""
        self._bodies.setdefault(name, body)
        return name

    def repeat(self, item: str, least: int, most: int | None, path: str) -> str:
        """Return `item` repeated `least` to `most` times (None: without end).

        In blocks: the library refuses more than 2,000 repetitions at once, and silently forgets a larger upper bound.
        """
        if least > _LONGEST or (most or 0) > _LONGEST:
            raise GrammarError(f"{path}: a length beyond {_LONGEST} cannot be enforced")
        parts = []
        if least >= _BLOCK:
            parts += [self.add(f"{path}-block", f"{item}{{{_BLOCK}}}")] * (least // _BLOCK)
        if least % _BLOCK:
            parts.append(f"{item}{{{least % _BLOCK}}}")
        parts.append(f"{item}*" if most is None else self._up_to(item, most - least, path))
        return " ".join(parts)

    def _up_to(self, item: str, most: int, path: str) -> str:
        if most == 0:
            return ""
        tail = f"{item}{{0,{most % _BLOCK}}}" if most % _BLOCK else ""
        for _ in range(most // _BLOCK):
            block = f"{item}{{{_BLOCK}}} {tail}"
            tail = self.add(f"{path}-upto", f"{block} | {item}{{0,{_BLOCK - 1}}}")
        return tail


def quote(text: str) -> str:
    r"""Return a GBNF literal; controls travel as \x escapes."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\x{ord(m[0]):02x}", plain) + '"'
