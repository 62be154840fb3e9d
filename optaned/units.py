"""Parse and format the units that people write: sizes, temperatures, durations. Knows no configuration and no file.

Sizes are binary only ("64GiB"): memory is sold and counted in powers of two, and a decimal "64GB" would be 4.4 GiB short.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

_BINARY = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# Nothing here is smaller than a page, so that a lower bare number is one whose unit was forgotten.
_LEAST_BARE = 4096
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)\s*")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

# Silicon that is still alive: below, a sensor is broken; above, every DIMM has long shut itself down.
CELSIUS_MIN, CELSIUS_MAX = -40.0, 125.0


def parse_bytes(value: object) -> int:
    """Return a size in bytes from "64GiB" or a plain count of bytes.

    Raises ValueError with the right spelling for decimal or unknown units.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"a size cannot be negative: {value}")
        if 0 < value < _LEAST_BARE:
            raise ValueError(f'{value} is {value} bytes; write the unit, like "{value}GiB"')
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'a size is written like "64GiB", not {value!r}')
    number, unit = match.groups()
    if not unit:
        raise ValueError(f'{value!r} has no unit; write it like "{number}GiB"')
    if unit in _BINARY:
        return int(float(number) * _BINARY[unit])
    guess = {u.lower(): u for u in _BINARY} | {p + end: p.upper() + "iB" for p in "kmgt" for end in ("", "b", "i")}
    hint = guess.get(unit.lower())
    if hint is None:
        raise ValueError(f"unknown unit {unit!r}; sizes are written in B, KiB, MiB, GiB or TiB")
    raise ValueError(f'unit {unit!r} is not binary; did you mean "{number}{hint}"?')


def format_bytes(size_bytes: float) -> str:
    """Return a size as people read it: `format_bytes(1536) == "1.5 KiB"`."""
    unit = "B"
    for unit, factor in reversed(_BINARY.items()):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:.4g} {unit}"


def parse_celsius(value: object) -> float:
    """Return a temperature in °C. Raises ValueError outside -40 to 125, with the likely meaning (millidegrees)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"a temperature is a number in °C, not {value!r}")  # noqa: TRY004  pydantic reports ValueError
    if CELSIUS_MIN <= value <= CELSIUS_MAX:
        return float(value)
    milli = f"; did you mean {value / 1000:g}? (the kernel counts in thousandths)" if 1000 < value <= 125_000 else ""
    raise ValueError(f"{value:g} °C is not plausible ({CELSIUS_MIN:g} to {CELSIUS_MAX:g}){milli}")


def parse_seconds(value: object) -> float:
    """Return a duration in seconds from a number or from "250ms", "30s", "5min", "2h", "3d"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'a duration is a number of seconds or text like "5min", not {value!r}')
    return float(match[1]) * _SECONDS[match[2]]


Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    WithJsonSchema(
        {"type": ["string", "integer"], "pattern": r"^\d+(\.\d+)?\s*(B|KiB|MiB|GiB|TiB)$", "examples": ["24GiB"]}
    ),
]
Celsius = Annotated[
    float, BeforeValidator(parse_celsius), WithJsonSchema({"type": "number", "minimum": -40, "maximum": 125})
]
Seconds = Annotated[
    float,
    BeforeValidator(parse_seconds),
    WithJsonSchema({"type": ["number", "string"], "pattern": r"^\d+(\.\d+)?\s*(ms|s|min|h|d)$"}),
]
