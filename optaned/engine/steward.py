"""The steward: a thread beside the model that watches the router, remembers heat, has experts moved and tells of it.

Joins the tap, the policy, the movers and the book. What is decided, `placement` decides; what moves, `carrier` carries.
The planned bytes are brought before the engine says that it is open.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from optaned.engine.by_hand import ByHand
from optaned.engine.carrier import Carrier
from optaned.engine.learning import Learning
from optaned.engine.messages import Failed, FromWorker, Move, Promotion, Residency, Text
from optaned.engine.residents import HOME, Residents
from optaned.errors import OptanedError
from optaned.placement.moves import MoveRules, Moves, Standing, plan_moves
from optaned.units import format_bytes

log = logging.getLogger("optaned.engine")

Send = Callable[[Iterable[FromWorker]], None]
Progress = Callable[[float, str], bool]

# How often it looks, and tells when something changed.
TICK_S = 1.0


@dataclass(frozen=True)
class Speed:
    """How fast pages may move now, in GB/s, and how many bytes have so far."""

    gbps: Callable[[], float] = lambda: float("inf")
    moved_bytes: Callable[[], int] = lambda: 0


class _Job(NamedTuple):
    """One thing to bring before the engine is open."""

    bring: Callable[[int, int], str | None]
    number: int
    tier: int
    size_bytes: int


class GivenUpError(OptanedError):
    """The parent left while the planned bytes were being brought."""

    exit_code = 75


class Steward:
    """Runs from `start` to `close`; `settle` comes before, `ask` may be called from any thread meanwhile."""

    def __init__(
        self,
        residents: Residents,
        carrier: Carrier,
        learning: Learning,
        *,
        send: Send,
        speed: Speed | None = None,
        halt: Callable[[], None] = lambda: None,
        anonymous_bytes: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        tick_s: float = TICK_S,
    ) -> None:
        """`anonymous_bytes` is what the kernel counts as copied, None where it does not say.

        `halt` ends a move that waits for leave, and all later ones.
        """
        self._residents = residents
        self._carrier = carrier
        self._learning = learning
        self._send = send
        self._speed = Speed() if speed is None else speed
        self._halt = halt
        self._anonymous_bytes = anonymous_bytes
        self._clock = clock
        self._tick_s = tick_s
        self._by_hand = ByHand(residents)
        self._asked: queue.SimpleQueue[Move | None] = queue.SimpleQueue()
        self._closing = False
        self._fault = ""
        self._saved_bytes = 0
        self._looked_s, self._looked_bytes, self._gbps = clock(), 0, 0.0
        self._told: Residency | None = None
        self._thread = threading.Thread(target=self._run, name="steward", daemon=True)

    # ---- before the engine is open -----------------------------------------------------------------------------------

    def settle(self, promotions: Sequence[Promotion], progress: Progress) -> None:
        """Bring what is planned: trunk tensors, then the experts that saved heat ranks first, else those of the plan.

        A tier that takes less than planned is logged and told: the model answers from home. Raises GivenUpError when
        `progress` returns False.
        """
        jobs = self._first_jobs(promotions)
        total, done = sum(job.size_bytes for job in jobs), 0
        for job in jobs:
            if not progress(done / total, f"promoting {format_bytes(done)} of {format_bytes(total)}"):
                raise GivenUpError("loading was given up")
            fault = job.bring(job.number, job.tier)
            if fault is not None:
                self._fail(f"{format_bytes(done)} of {format_bytes(total)} were promoted", fault)
                break
            done += job.size_bytes
        self._tell(self._clock(), swept=True)

    def _first_jobs(self, promotions: Sequence[Promotion]) -> list[_Job]:
        book, carrier = self._residents, self._carrier
        tiers = {spec.name: number for number, spec in enumerate(book.tiers)}
        trunk = [
            _Job(carrier.bring_tensor, number, tiers[part.tier], book.tensor_bytes(number))
            for part in promotions
            for number in part.tensors
        ]
        taken = [sum(job.size_bytes for job in trunk if job.tier == tier) for tier in range(len(tiers))]
        experts = self._first_experts(promotions, tiers, taken)
        return trunk + [_Job(carrier.bring_expert, n, tier, int(book.sizes[n])) for n, tier in experts]

    def _first_experts(
        self, promotions: Sequence[Promotion], tiers: dict[str, int], trunk_bytes: Sequence[int]
    ) -> list[tuple[int, int]]:
        scores = self._learning.scores(self._residents.resident)
        if scores is None or not self._learning.heat.tokens:
            return [(expert, tiers[p.tier]) for p in promotions for expert in p.experts]
        rooms = tuple(spec.budget_bytes - trunk for spec, trunk in zip(self._residents.tiers, trunk_bytes, strict=True))
        everything = MoveRules(sum(rooms), self._learning.uses_per_token, payback_tokens=float("inf"))
        moves = plan_moves(scores, self._standing(rooms), everything)
        return [(step.expert, step.tier) for step in moves.promote]

    # ---- while it answers --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def ask(self, move: Move) -> None:
        """Have something moved by hand; the answer is sent when it is known whether that can be done."""
        self._asked.put(move)

    def close(self) -> None:
        """Give up the move at hand, save heat, close the movers. Before the model is freed."""
        self._closing = True
        self._halt()
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self._learning.save(self._clock())
        self._carrier.close()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._serve(wait_s=self._tick_s)
                self.look()
        except OSError as error:
            log.info("nobody hears the steward any more: %s", error)
        except Exception:
            # Without it the model still answers, from where its bytes are.
            log.exception("the steward failed; nothing moves any more")

    def look(self) -> None:
        """Look once: learn, move what has become worth it, save, tell."""
        now_s = self._clock()
        if self._learning.learn(self._residents.used, now_s):
            self._exchange()
        self._learning.save_if_due(now_s)
        self._tell(now_s)

    def _exchange(self) -> None:
        scores = self._learning.scores(self._residents.resident)
        if scores is None:
            return
        rooms = tuple(
            spec.budget_bytes - self._residents.trunk_bytes(n) for n, spec in enumerate(self._residents.tiers)
        )
        # What one tick could not spend is kept for the next: an expert may be larger than a slow tick's bytes.
        allowed = min(self._speed.gbps() * 1e9 * self._tick_s, float(sum(rooms)))
        largest = int(self._residents.sizes.max(initial=0))
        self._saved_bytes = int(min(self._saved_bytes + allowed, allowed + largest))
        rules = MoveRules(self._saved_bytes, self._learning.uses_per_token, exchange=self._learning.exchanges_pay)
        moves = plan_moves(scores, self._standing(rooms), rules)
        self._saved_bytes -= sum(int(self._residents.sizes[step.expert]) for step in moves.promote)
        self._carry(moves)

    def _standing(self, rooms: tuple[int, ...]) -> Standing:
        book = self._residents
        return Standing(book.tier_of_expert.astype("int64"), book.sizes, rooms, book.pinned, book.barred)

    def _carry(self, moves: Moves) -> None:
        """Carry out a round; whatever somebody asks for by hand meanwhile comes first, and may have overtaken it."""
        book = self._residents
        for step in moves.demote:
            self._serve(wait_s=0)
            if self._closing:
                return
            if book.tier_of_expert[step.expert] == step.tier and not book.pinned[step.expert]:
                self._note(self._carrier.drop_expert(step.expert))
        for step in moves.promote:
            self._serve(wait_s=0)
            if self._closing:
                return
            fits = book.left_bytes(step.tier) >= int(book.sizes[step.expert])
            if book.tier_of_expert[step.expert] == HOME and fits and not book.barred[step.expert]:
                self._note(self._carrier.bring_expert(step.expert, step.tier))

    # ---- by hand -----------------------------------------------------------------------------------------------------

    def _serve(self, *, wait_s: float) -> None:
        """Answer what was asked by hand; wait for a question at most so long."""
        while not self._closing:
            try:
                move = self._asked.get(timeout=wait_s) if wait_s else self._asked.get_nowait()
            except queue.Empty:
                return
            if move is not None:
                self._obey(move)
                self._tell(self._clock())
            wait_s = 0

    def _obey(self, move: Move) -> None:
        try:
            order = self._by_hand.order(move, self._learning.heat.weight)
        except OptanedError as error:
            self._send([Failed(move.id, "move_refused", str(error))])
            return
        self._send([Text(move.id, order.text)])
        for expert in order.out:
            self._note(self._carrier.drop_expert(expert))
        for expert, tier in order.into:
            if not self._closing:
                self._note(self._carrier.bring_expert(expert, tier))

    # ---- telling -----------------------------------------------------------------------------------------------------

    def _note(self, fault: str | None) -> None:
        if fault is not None and not self._closing:
            self._fail("a move failed", fault)

    def _fail(self, what: str, fault: str) -> None:
        if fault != self._fault:
            log.warning("%s: %s", what, fault)
        self._fault = fault

    def _tell(self, now_s: float, *, swept: bool = False) -> None:
        """Tell what has changed since it was told."""
        moved = self._speed.moved_bytes()
        if now_s > self._looked_s:
            self._gbps = (moved - self._looked_bytes) / (now_s - self._looked_s) / 1e9
        self._looked_s, self._looked_bytes = now_s, moved
        moving = self._learning.sentence
        now = Residency(
            tiers=self._residents.uses(),
            routed_bytes_total=self._residents.routed_bytes,
            skew=self._learning.skew,
            moving=f"{moving}; last fault: {self._fault}" if self._fault else moving,
            smaps_bytes=self._anonymous_bytes(),
            move_gbps=0.0 if swept else round(self._gbps, 3),
        )
        if now != self._told:
            self._told = now
            self._send([now])
