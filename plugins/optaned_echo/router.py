"""A router that chooses by the token alone, so that a text always heats the same experts. Knows no state of the model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from optaned.api import RouterChoice, RouterCounts
from optaned_echo.options import EchoOptions


class EchoRouter:
    """`layers` routers of `experts` experts. Counts may be taken from another thread."""

    def __init__(self, options: EchoOptions) -> None:
        self._layers, self._experts = options.layers, options.experts
        self._used = min(options.experts_used, options.experts)
        self._lock = threading.Lock()
        self._counts = self._cold()
        self._tokens = [0, 0]
        self._choices: list[RouterChoice] = []
        self._traces = False

    def route(self, tokens: Sequence[int], *, prefill: bool) -> None:
        """Choose experts in every layer for each token."""
        if not self._layers:
            return
        with self._lock:
            for token in tokens:
                for layer in range(self._layers):
                    begin = (token * 31 + layer * 7) % self._experts
                    chosen = tuple((begin + step) % self._experts for step in range(self._used))
                    self._counts[int(prefill), layer, list(chosen)] += 1
                    if self._traces:
                        self._choices.append(RouterChoice(layer, chosen))
            self._tokens[int(prefill)] += len(tokens)

    def take_counts(self) -> RouterCounts:
        """Return and forget what was chosen since the last call."""
        with self._lock:
            (decode, prefill), self._counts = self._counts, self._cold()
            (tokens, prefill_tokens), self._tokens = self._tokens, [0, 0]
        return RouterCounts(decode, prefill, tokens, prefill_tokens)

    def take_choices(self) -> tuple[RouterChoice, ...]:
        """Return and forget each choice since the last call."""
        taken, self._choices = tuple(self._choices), []
        return taken

    def trace(self, *, on: bool) -> None:
        """Keep each choice, or stop keeping them."""
        self._traces = on
        self._choices = []

    def _cold(self) -> Any:
        return np.zeros((2, self._layers, self._experts), np.uint32)
