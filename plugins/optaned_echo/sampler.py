"""Says the answer one byte at a time, and makes sure that the model's state is the one that it belongs to."""

from __future__ import annotations

import math
from typing import Protocol

from optaned.api import Sampled, TokenLogprob
from optaned_echo.directives import Event
from optaned_echo.events import happen
from optaned_echo.vocabulary import END_TURN


class _Slots(Protocol):
    """What the sampler needs of its model."""

    def output(self, number: int) -> tuple[int, int]: ...

    def fail_next(self, slot: int) -> None: ...


class EchoSampler:
    """The chain of one answer. `state` is the model's state after the prompt."""

    def __init__(self, slots: _Slots, answer: bytes, events: tuple[Event, ...], state: int) -> None:
        self._slots = slots
        self._answer = answer
        self._events = events
        self._state = state

    def sample(self, output: int, *, position: int, top_logprobs: int | None) -> Sampled:
        slot, state = self._slots.output(output)
        if state != self._state:
            raise RuntimeError(f"slot {slot} holds another state than the answer at token {position} needs")
        for event in self._events:
            if event.at == position:
                if event.do == "fail":
                    self._slots.fail_next(slot)
                happen(event)
        token = self._answer[position] if position < len(self._answer) else END_TURN
        self._state = hash((state, token))
        return Sampled(token, None if top_logprobs is None else _logprob(token, top_logprobs))

    def close(self) -> None:
        """Nothing to free."""


def _logprob(token: int, count: int) -> TokenLogprob:
    """Return one half for the chosen token, one quarter for the next byte, and so on."""
    top = tuple(((token + step) % 256 if step else token, math.log(0.5 ** (step + 1))) for step in range(count))
    return TokenLogprob(token, math.log(0.5), top)
