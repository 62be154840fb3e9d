"""From a regular expression to GBNF for the inside of a JSON string. Knows the usual notation; knows no schema.

What stands in a JSON string is escaped: a quote is written `\\"`, so a class that contains one becomes an alternative.
Look-around, back references, word boundaries and anchors inside are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from optaned.api import GrammarError

_HIGHEST = 0x10FFFF
_SHORTHANDS = {
    "d": [(0x30, 0x39)],
    "w": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
    "s": [(0x20, 0x20), (0x09, 0x0A), (0x0D, 0x0D)],
}
_CONTROLS = {"n": 0x0A, "t": 0x09, "r": 0x0D, "f": 0x0C}
_QUANTIFIER = re.compile(r"[*+?]|\{\d{1,4}(?:,\d{0,4})?\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")
_WRITTEN = {0x22: r'"\\\""', 0x5C: r'"\\\\"', 0x0A: r'"\\n"', 0x09: r'"\\t"', 0x0D: r'"\\r"', 0x0C: r'"\\f"'}
_Ranges = list[tuple[int, int]]


def pattern_to_gbnf(pattern: str) -> str:
    """Return an expression for the strings that this expression matches, quotes not included.

    An open end (no `^` or `$`) takes any characters (the rule `char`). Raises GrammarError.
    """
    head, tail = pattern.startswith("^"), bool(re.search(r"(?<!\\)(?:\\\\)*\$$", pattern))
    reader = _Reader(pattern[head : len(pattern) - tail], pattern)
    body, branches = reader.read()
    if branches > 1 and (head or tail):
        raise GrammarError(f"pattern {pattern!r}: anchors beside | bind to one branch; write ^(?:…)$")
    return " ".join(([] if head else ["char*"]) + [f"( {body} )"] + ([] if tail else ["char*"]))


class _Reader:
    def __init__(self, text: str, shown: str) -> None:
        self._text = text
        self._shown = shown
        self._at = 0
        self._depth = 0

    def read(self) -> tuple[str, int]:
        body, branches = self._alternatives()
        if self._at < len(self._text):
            raise self._fault("unbalanced )")
        return body, branches

    def _alternatives(self) -> tuple[str, int]:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        return " | ".join(branches), len(branches)

    def _sequence(self) -> str:
        parts: list[str] = []
        while (c := self._peek()) and c not in "|)":
            atom = self._atom()
            quantifier = _QUANTIFIER.match(self._text, self._at)
            if quantifier:
                self._at = quantifier.end()
                if self._peek() in {"?", "+"}:  # lazy or possessive: the same strings match
                    self._at += 1
                atom = f"( {atom} ){quantifier[0]}"
            parts.append(atom)
        return " ".join(parts) or '""'

    def _atom(self) -> str:
        c = self._text[self._at]
        self._at += 1
        if c == "(":
            return self._group()
        if c == "[":
            return self._class()
        if c == ".":
            return written(_without([(0x20, _HIGHEST)], []))
        if c == "\\":
            return written(self._escape())
        if c in "^$*+?{":
            raise self._fault(f"{c} cannot stand here")
        return written([(ord(c), ord(c))])

    def _group(self) -> str:
        self._depth += 1
        if self._depth > 32:
            raise self._fault("groups are nested too deep")
        if self._peek() == "?":
            if not self._text.startswith("?:", self._at):
                raise self._fault("look-around and named groups are not supported")
            self._at += 2
        body, _ = self._alternatives()
        if self._peek() != ")":
            raise self._fault("unbalanced (")
        self._at += 1
        self._depth -= 1
        return f"( {body} )"

    def _class(self) -> str:
        negated = self._peek() == "^"
        self._at += negated
        ranges: _Ranges = []
        while (c := self._peek()) != "]" or not ranges:
            if not c:
                raise self._fault("unbalanced [")
            low = self._class_atom()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in {"]", ""} and len(low) == 1:
                self._at += 1
                high = self._class_atom()
                if len(high) != 1 or high[0][1] < low[0][0]:
                    raise self._fault("bad range in a class")
                low = [(low[0][0], high[0][1])]
            ranges += low
        self._at += 1
        return written(_without([(0x20, _HIGHEST)], ranges) if negated else ranges)

    def _class_atom(self) -> _Ranges:
        c = self._text[self._at]
        self._at += 1
        return self._escape() if c == "\\" else [(ord(c), ord(c))]

    def _escape(self) -> _Ranges:
        c = self._peek()
        self._at += 1
        if c.lower() in _SHORTHANDS and c:
            ranges = _SHORTHANDS[c.lower()]
            return ranges if c.islower() else _without([(0x20, _HIGHEST)], ranges)
        if c in _CONTROLS:
            return [(_CONTROLS[c], _CONTROLS[c])]
        if code := _HEX.match(self._text, self._at - 1):
            self._at = code.end()
            return [(int(code[1] or code[2], 16),) * 2]
        if not c or c.isalnum():
            raise self._fault(f"\\{c} is not supported")
        return [(ord(c), ord(c))]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _fault(self, what: str) -> GrammarError:
        return GrammarError(f"pattern {self._shown!r}: {what}")


def written(ranges: Iterable[tuple[int, int]]) -> str:
    """Return an expression for these characters as they are written in a JSON string. Raises GrammarError for none."""
    ranges = list(ranges)
    plain = _without([(max(low, 0x20), high) for low, high in ranges if high >= 0x20], [(0x22, 0x22), (0x5C, 0x5C)])
    shown = "".join(_code(low) + (f"-{_code(high)}" if high > low else "") for low, high in plain)
    parts = [f"[{shown}]"] if shown else []
    parts += [text for code, text in _WRITTEN.items() if any(low <= code <= high for low, high in ranges)]
    if not parts:
        raise GrammarError("pattern: a class without any character that JSON text can hold")
    return parts[0] if len(parts) == 1 else f"( {' | '.join(parts)} )"


def _without(ranges: _Ranges, removed: _Ranges) -> _Ranges:
    for out_low, out_high in removed:
        left = [(low, min(high, out_low - 1)) for low, high in ranges if low < out_low]
        right = [(max(low, out_high + 1), high) for low, high in ranges if high > out_high]
        ranges = left + right
    return sorted(ranges)


def _code(point: int) -> str:
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
