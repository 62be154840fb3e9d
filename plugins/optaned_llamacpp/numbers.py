"""GBNF for decimal numbers within bounds. Knows digits; knows no schema."""

from __future__ import annotations

from collections.abc import Iterator

INTEGER = '"-"? ( "0" | [1-9] [0-9]{0,17} )'
NUMBER = INTEGER + ' ( "." [0-9]{1,17} )? ( [eE] [-+]? [0-9]{1,2} )?'

_MOST_DIGITS = 18
_FRACTION = '( "." [0-9]{1,15} )?'
_NOTHING_BEHIND_THE_POINT = '( "." "0"{1,15} )?'
_SOMETHING_BEHIND_THE_POINT = '"." [0-9]{0,14} [1-9]'


def integers(least: int | None, most: int | None) -> str:
    """Return an expression for whole numbers in [least, most]; None is unbounded. Raises ValueError for none."""
    parts = []
    if most is None or most >= 0:
        parts += list(_digits(max(least or 0, 0), most))
    if least is None or least < 0:
        low = 1 if most is None or most >= 0 else -most
        parts += [f'"-" ( {_either(_digits(low, None if least is None else -least))} )']
    return _either(parts)


def decimals(least: int | None, most: int | None, *, least_open: bool = False, most_open: bool = False) -> str:
    """Return an expression for decimal numbers between whole bounds, which an open side excludes. Raises ValueError."""
    parts = []
    if most is None or most > 0 or (most == 0 and not most_open):
        low, low_open = (least, least_open) if least is not None and least >= 0 else (0, False)
        parts += list(_magnitudes(low, most, low_open=low_open, high_open=most_open))
    if least is None or least < 0:
        low, low_open = (0, most == 0 and most_open) if most is None or most >= 0 else (-most, most_open)
        high = None if least is None else -least
        parts += [f'"-" ( {_either(_magnitudes(low, high, low_open=low_open, high_open=least_open))} )']
    return _either(parts)


def _either(parts: Iterator[str] | list[str]) -> str:
    found = list(parts)
    if not found:
        raise ValueError("no number lies within these bounds")
    return " | ".join(found)


def _magnitudes(low: int, high: int | None, *, low_open: bool, high_open: bool) -> Iterator[str]:
    first = low + 1 if low_open else low
    whole = [] if high is not None and first > high - 1 else list(_digits(first, None if high is None else high - 1))
    if whole:
        yield f"( {' | '.join(whole)} ) {_FRACTION}"
    if low_open and (high is None or low < high):
        yield f'"{low}" {_SOMETHING_BEHIND_THE_POINT}'
    if high is not None and not high_open and (low < high or (low == high and not low_open)):
        yield f'"{high}" {_NOTHING_BEHIND_THE_POINT}'


def _digits(low: int, high: int | None) -> Iterator[str]:
    """Yield expressions for the numbers low to high (not negative), one a length."""
    for length in range(len(str(low)), _MOST_DIGITS + 1 if high is None else len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = 10**length - 1
        if high is None and length > len(str(low)):
            yield f"[1-9] [0-9]{{{length - 1},{_MOST_DIGITS - 1}}}"
            return
        last = last if high is None else min(last, high)
        if first <= last:
            yield _same_length(str(first), str(last))


def _same_length(low: str, high: str) -> str:
    rest = len(low) - 1
    if low == "0" * len(low) and high == "9" * len(high):
        return f"[0-9]{{{len(low)}}}"
    if rest == 0:
        return f"[{low}-{high}]"
    if low[0] == high[0]:
        return f'"{low[0]}" {_same_length(low[1:], high[1:])}'
    parts = []
    start, stop = int(low[0]), int(high[0])
    if low[1:] != "0" * rest:
        parts.append(f'"{low[0]}" {_same_length(low[1:], "9" * rest)}')
        start += 1
    last = "" if high[1:] == "9" * rest else f'"{high[0]}" {_same_length("0" * rest, high[1:])}'
    stop -= bool(last)
    if start <= stop:
        parts.append(f"[{start}-{stop}] [0-9]{{{rest}}}")
    return f"( {' | '.join([*parts, last] if last else parts)} )"
