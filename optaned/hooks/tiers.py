"""What drivers of tiers and of placement policies open: protocols, and the records that pass between them and the core.

Knows no backend, no plugin and no hook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from optaned.domain.model import ByteRange, ModelIndex
from optaned.domain.tiers import Offload, PlacementPlan, TierInfo


@runtime_checkable
class Tier(Protocol):
    """A kind of memory. `probe` is cheap, changes nothing and works in any process."""

    def probe(self) -> TierInfo:
        """Return capacity, free bytes, bandwidth and place; raises OptanedError with the reason when it is unusable."""

    def close(self) -> None: ...


class Moved(NamedTuple):
    """What a move really did: bytes now resident (or given back), and why it did less than asked, if it did."""

    size_bytes: int
    fault: str | None = None


class Pages(Protocol):
    """The mapped bytes of a loaded model, for movers. Model bytes are never changed: a copy or the original is read.

    Every call is cut into pieces of at most 4 MiB, so that a stop signal is heard within milliseconds.
    """

    def promote(self, ranges: Sequence[ByteRange], *, numa_node: int | None) -> Moved:
        """Copy ranges into DRAM (of a node); reads go there from the moment that a page is copied."""

    def demote(self, ranges: Sequence[ByteRange]) -> Moved:
        """Drop the copies: reads go home again."""


class Mover(Protocol):
    """Moves ranges of one loaded model into one tier and back."""

    def promote(self, ranges: Sequence[ByteRange]) -> Moved: ...

    def demote(self, ranges: Sequence[ByteRange]) -> Moved: ...

    def close(self) -> None: ...


@runtime_checkable
class Movable(Protocol):
    """A tier that can take promoted bytes. `open_mover` is called in the engine only, after the model is mapped."""

    def open_mover(self, pages: Pages) -> Mover: ...


@runtime_checkable
class Offloading(Protocol):
    """A tier whose bytes the backend places while it loads: nothing moves later."""

    def offload(self) -> Offload: ...


# ---- placement policies ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpertStats:
    """What is known of the experts' use; all arrays are over flat expert numbers, float64 or bool.

    `frequency` is decayed uses a token, `idle_tokens` how many tokens ago each was last chosen (inf: never), `resident`
    which are in a faster tier than home; `tokens` how many tokens all of this was learned from.
    """

    frequency: Any
    idle_tokens: Any
    resident: Any
    tokens: int


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a placement policy decides on. Tiers come with what they probed; `promote_to` is in order of preference."""

    index: ModelIndex
    tiers: tuple[TierInfo, ...]
    promote_to: tuple[str, ...] = ()
    kv_bytes: int = 0
    heat: ExpertStats | None = None


@runtime_checkable
class PlacementPolicy(Protocol):
    """Decides which bytes live where. Pure: no clock, no disk, no socket, no log."""

    def plan(self, request: PlanRequest) -> PlacementPlan: ...


@runtime_checkable
class Scores(Protocol):
    """A policy that goes on deciding while the model generates."""

    def score(self, stats: ExpertStats) -> Any:
        """Return how much each expert deserves fast memory: a float64 array over flat numbers, 0 for not at all.

        The core turns scores into moves: admission, hysteresis, victims and budget are its business.
        """
