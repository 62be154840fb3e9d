"""What the router teaches: counts become heat, heat becomes scores, and heat is saved. Knows the tap and the policy.

Without a router to watch, or with a policy that does not go on deciding, there is nothing to learn or nothing to score.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optaned.domain.model import ModelIndex
from optaned.errors import OptanedError
from optaned.hooks.drivers import PlacementPolicy, RouterCounts, Scores, Tapped
from optaned.placement.heat import Heat
from optaned.placement.skew import Skew, measure_skew
from optaned.residency.expert_stats import stats_of
from optaned.residency.heat_file import HeatFlusher

log = logging.getLogger("optaned.engine")

# After so long without a token an answer is over: a good time for the disk, and nothing is lost if the next thing is a stop.
REST_S = 2.0

Used = Callable[[NDArray[np.int64]], None]


class Learning:
    """The heat of one model. One thread; the model's tap may be asked from there."""

    def __init__(
        self,
        index: ModelIndex,
        model: object,
        *,
        policy: PlacementPolicy,
        heat: Heat | None = None,
        flusher: HeatFlusher | None = None,
    ) -> None:
        """`heat` is what was saved before; `flusher` None saves nothing."""
        self._rows, self._experts = len(index.expert_layers), index.expert_count
        self._experts_used = index.expert_used_count
        self._tapped = model if isinstance(model, Tapped) else None
        self._policy = policy
        self._flusher = flusher
        self._skew: Skew | None = None
        self._learned_s: float | None = None
        nothing = np.zeros(self._rows * self._experts, np.int64)
        self._late = (nothing, nothing)
        self.heat = Heat.cold(self._rows * self._experts) if heat is None else heat
        if heat is not None and heat.tokens:
            self._measure()

    @property
    def uses_per_token(self) -> float:
        """Return how many experts a token uses, all layers together."""
        return float(self._rows * self._experts_used)

    @property
    def exchanges_pay(self) -> bool:
        """Say whether a hotter expert may push a colder one out."""
        return self._skew is not None and self._skew.exchanges_pay

    @property
    def skew(self) -> float | None:
        return round(self._skew.value, 4) if self._skew is not None and self._skew.known else None

    @property
    def sentence(self) -> str:
        """Return in one line for people why experts move or do not."""
        if not self._rows:
            return "the model has no routed experts"
        if not isinstance(self._policy, Scores):
            return "experts stay where the policy put them"
        if self._tapped is None:
            return "experts stay where they are: the backend cannot watch the router"
        return "nothing is known of the router yet" if self._skew is None else self._skew.sentence

    def learn(self, used: Used, now_s: float) -> bool:
        """Take in what the router chose since the last time; `used` gets what decoding chose as counts by flat number.

        Return whether there was anything.
        """
        counts = None if self._tapped is None else self._tapped.take_counts()
        if counts is None or not np.size(counts.decode) or not self._fits(counts):
            return False
        # A token counts at its first layer, its other layers' choices may come a look later: they wait for the next token.
        decode, prefill = self._late[0] + _flat(counts.decode), self._late[1] + _flat(counts.prefill)
        nothing = np.zeros_like(decode)
        self._late = (nothing if counts.tokens else decode, nothing if counts.prefill_tokens else prefill)
        if not (counts.tokens or counts.prefill_tokens):
            return False
        decode = decode if counts.tokens else nothing
        used(decode)
        self.heat = self.heat.observe(decode, counts.tokens, prefill, counts.prefill_tokens)
        self._measure()
        self._learned_s = now_s
        return True

    def scores(self, resident: NDArray[np.bool_]) -> Any:
        """Return the policy's scores; None where it does not score or there are no experts."""
        if not self._rows or not isinstance(self._policy, Scores):
            return None
        return self._policy.score(stats_of(self.heat, resident))

    def save_if_due(self, now_s: float) -> None:
        """Save at most once an interval while there is something new, and once more when the router has come to rest."""
        if self._flusher is None or self._learned_s is None:
            return
        rests = now_s - self._learned_s >= REST_S
        if rests or self._flusher.due(now_s):
            self.save(now_s)
        if rests:
            self._learned_s = None

    def save(self, now_s: float) -> None:
        """Save what is known, if anything is; a disk that refuses is logged and asked again later."""
        if self._flusher is None or not self.heat.tokens:
            return
        try:
            self._flusher.flush(self.heat, now_s)
        except OptanedError as error:
            log.warning("%s", error)

    def _measure(self) -> None:
        self._skew = measure_skew(self.heat, layers=self._rows, used=self._experts_used)

    def _fits(self, counts: RouterCounts) -> bool:
        shape = (self._rows, self._experts)
        if np.shape(counts.decode) == shape:
            return True
        log.error(
            "the backend counts experts of shape %s, the model has %s; its router is not watched",
            np.shape(counts.decode),
            shape,
        )
        self._tapped = None
        return False


def _flat(counts: Any) -> NDArray[np.int64]:
    return np.asarray(counts, dtype=np.int64).ravel()
