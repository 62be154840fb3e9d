"""What a template may cost: steps, text length, number sizes. Knows no chat and no model.

A template comes out of a downloaded file. Jinja's sandbox keeps it from reaching Python, but not from running for ever
or filling memory. Nothing here is a wall by itself: the process that renders is expendable; these limits turn a hostile
or broken template into one refused request instead.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# A million-token prompt has about 4 million characters; a real template takes about 40 steps a message.
MAX_TEXT_CHARS = 32 << 20
MAX_STEPS = 2_000_000
MAX_NUMBER = 100_000  # of an exponent, a width, a repetition: also what Jinja's sandbox allows a range

_WIDE = re.compile(r"\d{5,}")


class LimitError(Exception):
    """A template asked for more than a conversation can need."""


def join(parts: Iterable[object]) -> str:
    """Return all parts as one text. Raises LimitError when it would be longer than MAX_TEXT_CHARS."""
    texts: list[str] = []
    chars = 0
    for part in parts:
        text = part if isinstance(part, str) else str(part)
        chars += len(text)
        if chars > MAX_TEXT_CHARS:
            raise LimitError(f"more than {MAX_TEXT_CHARS} characters of text")
        texts.append(text)
    return "".join(texts)


def check_add(left: Any, right: Any) -> None:
    """Refuse a sum of texts or lists that is too long."""
    if _length(left) + _length(right) > MAX_TEXT_CHARS:
        raise LimitError("a sum of texts that is too long")


def check_multiply(left: Any, right: Any) -> None:
    """Refuse `"a" * 10**10`."""
    for many, times in ((left, right), (right, left)):
        if isinstance(times, int) and _length(many) * times > MAX_TEXT_CHARS:
            raise LimitError("a repetition that is too long")


def check_power(left: Any, right: Any) -> None:
    """Refuse numbers that take minutes to compute."""
    if isinstance(right, int | float) and abs(right) > 64:
        raise LimitError(f"an exponent of {right}")
    if isinstance(left, int) and left.bit_length() > 64:
        raise LimitError("a power of a huge number")


def check_modulo(left: Any, _right: Any) -> None:
    """Refuse `"%9999999999d" % 1`: a width that alone fills memory."""
    if isinstance(left, str) and _WIDE.search(left):
        raise LimitError("a format with a width that is too large")


def check_join(separator: str, parts: list[str]) -> None:
    """Refuse a text that its separator or its parts make too long."""
    if sum(map(len, parts)) + len(separator) * len(parts) > MAX_TEXT_CHARS:
        raise LimitError("a joined text that is too long")


def check_replace(text: str, old: str, new: str) -> None:
    """Refuse a replacement that makes a text too long."""
    if len(text) + text.count(old) * len(new) > MAX_TEXT_CHARS:
        raise LimitError("a replacement that makes the text too long")


def check_lines(text: str, width: object) -> None:
    """Refuse an indentation or a tab that many lines make too long."""
    chars = width if isinstance(width, int) else len(str(width))
    if len(text) + (text.count("\n") + text.count("\t") + 1) * chars > MAX_TEXT_CHARS:
        raise LimitError("an indentation that makes the text too long")


def check_method(method: Any, args: tuple[Any, ...]) -> None:
    """Refuse a call of a text's method whose result would be too long. What is no text is left to the method."""
    name, text = method.__name__, method.__self__
    if name == "join" and args and isinstance(args[0], list | tuple) and all(isinstance(a, str) for a in args[0]):
        check_join(text, list(args[0]))
    elif name == "replace" and len(args) > 1 and all(isinstance(a, str) for a in args[:2]):
        check_replace(text, args[0], args[1])
    elif name == "expandtabs":
        check_lines(text, args[0] if args else 8)


CHECKS = {"+": check_add, "*": check_multiply, "**": check_power, "%": check_modulo}


def bounded(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call` refusing whole numbers above MAX_NUMBER: the widths and counts of `center`, `indent`, `ljust`, …"""

    @functools.wraps(call)
    def bounded_call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and abs(value) > MAX_NUMBER:
                raise LimitError(f"a number of {value} where a width or a count belongs")
        return call(*args, **kwargs)

    return bounded_call


@contextmanager
def step_limit(filename: str, steps: int = MAX_STEPS) -> Iterator[None]:
    """Count the lines that code compiled as `filename` executes in this thread; raises LimitError after `steps`.

    Loops without output give a sandbox no other place to look: a trace function sees every turn of them. Code of other
    files runs untraced.
    """
    left = steps

    def count(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                raise LimitError(f"more than {steps} steps")
        return count

    def enter(frame: FrameType, _event: str, _arg: object) -> Any:
        return count if frame.f_code.co_filename == filename else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | bytes) else 0
