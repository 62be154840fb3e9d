"""Read a GBNF grammar and say in one line what is wrong with it. Knows the notation; knows no library and no token.

The library reports faults on stderr with the whole grammar, loops for ever on left recursion that passes through a
rule that may be empty, and overruns its stack on deep nesting. So a grammar is read here first, with its own limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from optaned.api import GrammarError

_LONGEST, _DEEPEST = 512 * 1024, 64
_REPEATED_MOST = 2000  # the library's own threshold
_NAME = re.compile(r"[A-Za-z0-9-]+")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_OR_NEWLINE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_TOKEN = re.compile(r"!?<(?:\[\d{1,9}\]|[^>]*)>")
_BOUNDS = re.compile(r"\{[ \t]*(\d{1,9})[ \t]*(?:(,)[ \t]*(\d{1,9})?[ \t]*)?\}")
_ESCAPE = re.compile(r'\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[trn\\"\[\]-])')


@dataclass(slots=True)
class _Item:
    """A terminal (`name` and `group` empty), a reference, or a group; `loops` when it may come more than once."""

    name: str = ""
    group: list[list[_Item]] | None = None
    optional: bool = False
    loops: bool = False


def check_gbnf(text: str) -> None:
    """Raise GrammarError, naming the line, unless this is a grammar that the library can follow from `root`."""
    if len(text) > _LONGEST:
        raise GrammarError(f"grammar: {len(text)} characters are more than {_LONGEST}")
    if "\0" in text or (not text.isprintable() and _unencodable(text)):
        raise GrammarError("grammar: holds a NUL or half a surrogate pair")
    rules = _Reader(text).read()
    if "root" not in rules:
        raise GrammarError("grammar: has no rule named root")
    for name, alternatives in rules.items():
        for used in _names(alternatives):
            if used not in rules:
                raise GrammarError(f"grammar: rule {name} uses {used}, which is not defined")
    _refuse_left_recursion(rules)


def _unencodable(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


class _Reader:
    """A recursive-descent reader that counts the rules that the library will make of repetitions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._made = 0
        self._seen: set[str] = set()

    def read(self) -> dict[str, list[list[_Item]]]:
        rules: dict[str, list[list[_Item]]] = {}
        self._skip(newlines=True)
        while self._at < len(self._text):
            name = self._take(_NAME, "a rule name")
            self._seen.add(name)
            self._skip(newlines=False)
            if not self._text.startswith("::=", self._at):
                raise self._fault("expected ::=")
            self._at += 3
            self._skip(newlines=True)
            rules[name] = self._alternatives(nested=False)
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                raise self._fault("expected the end of the rule")
            self._skip(newlines=True)
        return rules

    def _alternatives(self, *, nested: bool) -> list[list[_Item]]:
        found = [self._sequence(nested=nested)]
        while self._peek() == "|":
            self._at += 1
            self._skip(newlines=True)
            found.append(self._sequence(nested=nested))
        return found

    def _sequence(self, *, nested: bool) -> list[_Item]:
        items: list[_Item] = []
        weight = 1
        repeatable = False
        while (c := self._peek()) and c not in "|)\r\n":
            if c in "*+?{":
                if not repeatable:
                    raise self._fault(f"nothing before {c} to repeat")
                weight = self._repeat(items[-1], weight)
            else:
                before = self._count()
                item = self._item(c)
                weight = max(1, self._count() - before) if item and item.group is not None else 1
                repeatable = item is not None
                items += [item] if item else []
            self._skip(newlines=nested)
        return items

    def _item(self, c: str) -> _Item | None:
        if c == '"':
            return self._characters('"')
        if c == "[":
            return self._characters("]")
        if c in "<!":
            self._take(_TOKEN, "a token, <[number]> or <text>")
            return _Item()
        if c == ".":
            self._at += 1
            return _Item()
        if c == "(":
            return self._group()
        name = self._take(_NAME, "a rule name, a literal, a class or a group")
        self._seen.add(name)
        return _Item(name=name)

    def _group(self) -> _Item:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._fault(f"groups are nested deeper than {_DEEPEST}")
        self._at += 1
        self._skip(newlines=True)
        self._made += 1
        item = _Item(group=self._alternatives(nested=True))
        if self._peek() != ")":
            raise self._fault("expected )")
        self._at += 1
        self._depth -= 1
        return item

    def _characters(self, end: str) -> _Item | None:
        """Read a literal or a class; one without characters stands for nothing at all."""
        start = self._at
        self._at += 1
        if end == "]" and self._peek() == "^":
            self._at += 1
        empty = True
        while (c := self._peek()) != end:
            if not c:
                self._at = start
                raise self._fault(f"no closing {end}")
            if c == "\\":
                self._take(_ESCAPE, "a known escape")
            else:
                self._at += 1
            empty = False
        self._at += 1
        return None if empty else _Item()

    def _repeat(self, item: _Item, weight: int) -> int:
        least, most = self._bounds()
        if least > _REPEATED_MOST:
            raise self._fault(f"more than {_REPEATED_MOST} repetitions")
        most = None if most is not None and most > _REPEATED_MOST else most
        if most is not None and most < least:
            raise self._fault(f"cannot repeat at least {least} and at most {most} times")
        times = most or least or 1
        if weight * times > _REPEATED_MOST:
            raise self._fault(f"nested repetitions make more than {_REPEATED_MOST} rules")
        self._made += 1 if most is None else most - least
        item.optional |= least == 0
        item.loops |= most is None or most > 1
        return weight * times

    def _bounds(self) -> tuple[int, int | None]:
        c = self._peek()
        if c == "{":
            match = _BOUNDS.match(self._text, self._at)
            if match is None:
                raise self._fault("expected {n}, {n,} or {n,m}")
            self._at = match.end()
            least = int(match[1])
            return least, int(match[3]) if match[3] else (None if match[2] else least)
        self._at += 1
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]

    def _count(self) -> int:
        return self._made + len(self._seen)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, *, newlines: bool) -> None:
        match = (_SPACE_OR_NEWLINE if newlines else _SPACE).match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _take(self, pattern: re.Pattern[str], expected: str) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._fault(f"expected {expected}")
        self._at = match.end()
        return match[0]

    def _fault(self, what: str) -> GrammarError:
        line = self._text.count("\n", 0, self._at) + 1
        near = self._text[self._at : self._at + 20].split("\n")[0]
        return GrammarError(f"grammar: line {line}: {what}" + (f" at {near!r}" if near else ""))


def _names(alternatives: list[list[_Item]]) -> Iterator[str]:
    for items in alternatives:
        for item in items:
            if item.name:
                yield item.name
            if item.group is not None:
                yield from _names(item.group)


def _refuse_left_recursion(rules: dict[str, list[list[_Item]]]) -> None:
    empty = _may_be_empty(rules)
    edges = {name: sorted(set(_first(alternatives, empty))) for name, alternatives in rules.items()}
    done: set[str] = set()
    for start in rules:
        # Depth first with an explicit stack: a chain of rules may be longer than Python's recursion limit.
        path, todo = [start], [iter(edges[start])]
        on_path = {start}
        while todo and start not in done:
            following = next(todo[-1], None)
            if following is None:
                todo.pop()
                finished = path.pop()
                on_path.discard(finished)
                done.add(finished)
            elif following in on_path:
                raise GrammarError(f"grammar: rule {following} refers to itself before any character (left recursion)")
            elif following not in done:
                path.append(following)
                on_path.add(following)
                todo.append(iter(edges[following]))


def _may_be_empty(rules: dict[str, list[list[_Item]]]) -> set[str]:
    empty: set[str] = set()
    grew = True
    while grew:
        grew = False
        for name, alternatives in rules.items():
            if name not in empty and _is_empty(alternatives, empty):
                empty.add(name)
                grew = True
    return empty


def _is_empty(alternatives: list[list[_Item]], empty: set[str]) -> bool:
    return any(all(_passes(item, empty) for item in items) for items in alternatives)


def _passes(item: _Item, empty: set[str]) -> bool:
    if item.optional or (item.name and item.name in empty):
        return True
    return item.group is not None and _is_empty(item.group, empty)


def _first(alternatives: list[list[_Item]], empty: set[str]) -> Iterator[str]:
    """Yield the rules that may stand first."""
    for items in alternatives:
        for item in items:
            if item.name:
                yield item.name
            if item.group is not None:
                yield from _first(item.group, empty)
            if not _passes(item, empty):
                break
