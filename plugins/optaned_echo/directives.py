"""What a user message tells the echo to do. Knows text only.

    [[say TEXT]]           answer TEXT instead of the message
    [[tokens N]]           answer with N tokens (the alphabet over and over)
    [[show sampling]]      answer with the sampling parameters as JSON
    [[crash SIGNAL at N]]  die of a signal (6 abort, 9 kill, 11 segmentation fault) before token number N
    [[exit STATUS at N]]   end the process with a status
    [[stall SECONDS at N]] stand still for so long (`2` or `2s`)
    [[fail at N]]          have the next model call of this answer refused

N counts from 0; `at prefill` instead makes it happen in the middle of evaluating the prompt. Directives are left out of
what is echoed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_EVENT = re.compile(r"(crash|exit|stall|fail)(?:\s+(\d+(?:\.\d+)?)s?)?\s+at\s+(\d+|prefill)")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"

# The longest answer that a directive may ask for.
MAX_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """Do something before token number `at` (None: during the prefill). `value` is a signal, a status or seconds."""

    do: str
    at: int | None
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Script:
    """What to answer, what happens on the way, and whether the sampling parameters are the answer."""

    text: str
    events: tuple[Event, ...] = ()
    show_sampling: bool = False


def parse(message: str) -> Script:
    """Return the script of a user message; unknown directives are text like any other."""
    said: str | None = None
    events: list[Event] = []
    show_sampling = False
    rest, end = [], 0
    for match in _DIRECTIVE.finditer(message):
        body = match[1].strip()
        event = _EVENT.fullmatch(body)
        if event is not None:
            at = None if event[3] == "prefill" else int(event[3])
            events.append(Event(event[1], at, float(event[2] or 0)))
        elif body.startswith("say "):
            said = (said or "") + body.removeprefix("say ")
        elif re.fullmatch(r"tokens \d{1,7}", body):
            said = filler(min(int(body.split()[1]), MAX_TOKENS))
        elif body == "show sampling":
            show_sampling = True
        else:
            continue
        rest.append(message[end : match.start()])
        end = match.end()
    rest.append(message[end:])
    return Script("".join(rest) if said is None else said, tuple(events), show_sampling)


def filler(count: int) -> str:
    """Return `count` letters, one token each."""
    return (_ALPHABET * (count // len(_ALPHABET) + 1))[:count]
