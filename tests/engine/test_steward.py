"""The steward and its house: what is brought at the start, what moves by heat, what by hand, and what is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from optaned.api import (
    ByteRange,
    ExpertStats,
    Group,
    ModelIndex,
    Moved,
    PlacementPlan,
    PlanRequest,
    RouterChoice,
    RouterCounts,
    Shard,
    Tensor,
)
from optaned.engine.carrier import Carrier
from optaned.engine.house import GivenUpError
from optaned.engine.learning import Learning
from optaned.engine.messages import Failed, FromWorker, Move, Promotion, Residency, Text, TierSpec
from optaned.engine.page_house import PageHouse
from optaned.engine.residents import Residents
from optaned.engine.steward import Speed, Steward
from optaned.placement.heat import Heat
from optaned.residency.heat_file import HeatFlusher, read_heat

LAYERS, EXPERTS, USED, EXPERT_BYTES, TRUNK_BYTES = 2, 8, 2, 100, 50


def paper_index() -> ModelIndex:
    """Two shards: trunk and layer 1's experts on the first, layer 3's on the second (layers 0 and 2 have none)."""
    tensors = [Tensor("token_embd.weight", (TRUNK_BYTES,), "I8", ByteRange(0, 0, TRUNK_BYTES), None, Group.TRUNK)]
    for shard, layer in ((0, 1), (1, 3)):
        place = ByteRange(shard, 1000, EXPERTS * EXPERT_BYTES)
        tensors.append(
            Tensor(f"blk.{layer}.ffn_up_exps.weight", (EXPERT_BYTES, EXPERTS), "I8", place, layer, Group.EXPERT)
        )
    shards = tuple(Shard(Path(f"/pmem{n}/m.gguf"), 5000, 0) for n in range(2))
    return ModelIndex("paper", "paper", shards, tuple(tensors), "digest", 4, EXPERTS, USED)


def tier(name: str = "dram0", *, budget_bytes: int = 450) -> TierSpec:
    return TierSpec(name=name, driver="memory", options={}, numa_node=None, budget_bytes=budget_bytes)


@dataclass
class FakeMover:
    """Holds ranges. After `fails_after` promotions it moves half of what is asked and says why."""

    fails_after: int = 1_000_000
    held: set[ByteRange] = field(default_factory=set)
    half: list[ByteRange] = field(default_factory=list)
    calls: int = 0
    closed: bool = False

    def promote(self, ranges: Sequence[ByteRange]) -> Moved:
        self.calls += 1
        if self.calls > self.fails_after:
            self.half = list(ranges)
            return Moved(0, "no memory")
        self.held.update(ranges)
        return Moved(sum(r.size_bytes for r in ranges))

    def demote(self, ranges: Sequence[ByteRange]) -> Moved:
        self.held.difference_update(ranges)
        self.half = [part for part in self.half if part not in ranges]
        return Moved(sum(r.size_bytes for r in ranges))

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeRouter:
    """A model of which only the router is watched."""

    counts: RouterCounts | None = None

    def choose(self, *experts: int, tokens: int = 100, layer_row: int = 0) -> None:
        """Have `tokens` tokens decoded that use these experts of a row and the first two of the other rows."""
        decode = np.zeros((LAYERS, EXPERTS), np.uint32)
        decode[:, :USED] = tokens
        decode[layer_row] = 0
        decode[layer_row, list(experts)] = tokens
        self.counts = RouterCounts(decode, np.zeros_like(decode), tokens, 0)

    def take_counts(self) -> RouterCounts:
        nothing = np.zeros((LAYERS, EXPERTS), np.uint32)
        taken, self.counts = self.counts, None
        return taken or RouterCounts(nothing, nothing, 0, 0)

    def take_choices(self) -> tuple[RouterChoice, ...]:
        return ()

    def trace(self, *, on: bool) -> None:
        pass


class Hottest:
    """A policy that scores by frequency alone."""

    def plan(self, request: PlanRequest) -> PlacementPlan:
        raise NotImplementedError

    def score(self, stats: ExpertStats) -> object:
        return stats.frequency


@dataclass
class Household:
    """A steward with everything around it; `now_s` is its clock."""

    tiers: tuple[TierSpec, ...] = (tier(),)
    heat: Heat | None = None
    flusher: HeatFlusher | None = None
    movers: list[FakeMover] = field(default_factory=list)
    router: FakeRouter = field(default_factory=FakeRouter)
    told: list[FromWorker] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.movers = self.movers or [FakeMover() for _ in self.tiers]
        index = paper_index()
        self.book = Residents(index, self.tiers, ("pmem0", "pmem1"))
        self.learning = Learning(index, self.router, policy=Hottest(), heat=self.heat, flusher=self.flusher)
        self.steward = Steward(
            PageHouse(self.book, Carrier(self.book, self.movers)),
            self.learning,
            send=self.told.extend,
            speed=Speed(gbps=lambda: 1e-6),
            clock=lambda: self.now_s,
        )

    def look(self, *, after_s: float = 1.0) -> None:
        self.now_s += after_s
        self.steward.look()

    @property
    def residency(self) -> Residency:
        return [message for message in self.told if isinstance(message, Residency)][-1]

    @property
    def resident(self) -> set[int]:
        return set(np.flatnonzero(self.book.resident).tolist())


PLAN = (Promotion("dram0", (0,), (3, 1)),)


def settle(home: Household) -> list[tuple[float, str]]:
    progress: list[tuple[float, str]] = []
    home.steward.settle(PLAN, lambda fraction, text: progress.append((fraction, text)) is None)
    return progress


def ask(home: Household, do: str, layer: int, expert: int | None = None) -> FromWorker:
    home.told.clear()
    home.steward.ask(Move("m", do, layer, expert))
    home.steward.serve(wait_s=0.01)
    return next(message for message in home.told if isinstance(message, Text | Failed))


def hot(*flats: int) -> Heat:
    counts = np.zeros(16)
    counts[list(flats)] = range(len(flats) * 100, 0, -100)
    return Heat.cold(16).observe(counts, 1000)


def test_the_planned_bytes_are_brought_and_told_before_anything_else() -> None:
    home = Household()
    progress = settle(home)
    assert [round(fraction, 2) for fraction, _ in progress] == [0.0, 0.2, 0.6]
    assert progress[1][1] == "promoting 50 B of 250 B"
    assert home.resident == {1, 3}
    fast, first, second = home.residency.tiers
    assert (fast.name, fast.trunk_bytes, fast.expert_bytes, fast.experts) == ("dram0", 50, 200, 2)
    assert (first.name, first.trunk_bytes, first.expert_bytes, first.experts) == ("pmem0", 0, 600, 6)
    assert (second.name, second.expert_bytes) == ("pmem1", 800)


def test_saved_heat_says_better_than_the_plan_which_experts_come_first() -> None:
    home = Household(heat=hot(9, 4, 2, 15, 0))
    settle(home)
    assert home.resident == {9, 4, 2, 15}, "four fit beside the trunk"


def test_loading_that_is_given_up_ends_between_two_moves() -> None:
    home = Household()
    with pytest.raises(GivenUpError):
        home.steward.settle(PLAN, lambda fraction, _text: fraction == 0.0)
    assert home.movers[0].calls == 1


def test_a_tier_that_refuses_leaves_a_true_book_and_a_reason() -> None:
    home = Household(movers=[FakeMover(fails_after=2)])
    settle(home)
    assert home.resident == {3}
    assert home.movers[0].half == [], "what came halfway is given back"
    assert home.residency.moving.endswith("last fault: no memory")
    assert home.residency.tiers[0].expert_bytes == 100


def test_experts_move_in_as_they_are_used_and_hits_are_counted() -> None:
    home = Household()
    home.router.choose(5, 6)
    home.look()
    assert home.resident == {5, 6, 8, 9}
    assert home.residency.routed_bytes_total == 4 * 100 * 100
    assert [use.hit_bytes_total for use in home.residency.tiers] == [0, 20_000, 20_000]
    home.router.choose(5, 6)
    home.look()
    assert [use.hit_bytes_total for use in home.residency.tiers] == [40_000, 20_000, 20_000]


def test_a_skewed_router_s_new_favourites_push_the_old_ones_out() -> None:
    home = Household()
    home.router.choose(5, 6)
    home.look()
    for _ in range(12):
        home.router.choose(2, 3, tokens=1000)
        home.look()
    assert home.resident == {2, 3, 8, 9}
    use = home.residency.tiers[0]
    assert (use.demoted_bytes_total, use.promoted_bytes_total) == (200, 600)
    assert home.residency.skew is not None
    assert home.residency.moving.startswith("experts move by heat")


def test_moves_go_no_faster_than_the_pace_allows() -> None:
    home = Household()
    home.steward._speed = Speed(gbps=lambda: 1e-7)  # 100 bytes a tick: one expert
    home.router.choose(5, 6)
    home.look()
    assert len(home.resident) == 1
    home.router.choose(5, 6)
    home.look()
    assert len(home.resident) == 2


def test_nothing_is_told_twice() -> None:
    home = Household()
    home.look()
    told = len(home.told)
    home.look()
    assert len(home.told) == told


@pytest.mark.parametrize(
    ("layer", "expert", "reason"),
    [
        (0, None, "layer 0 has no routed experts; layers 1 to 3 have"),
        (1, 8, "there is no expert 8; layer 1 has 0 to 7"),
        (1, None, "800 B do not fit: dram0 has 450 B that are neither trunk nor pinned"),
    ],
)
def test_what_cannot_be_moved_is_refused_with_the_reason(layer: int, expert: int | None, reason: str) -> None:
    answer = ask(home := Household(), "promote", layer, expert)
    assert isinstance(answer, Failed)
    assert answer.code == "move_refused"
    assert answer.message.startswith(reason)
    assert home.resident == set()


def test_without_a_tier_to_move_to_the_answer_names_the_setting() -> None:
    answer = ask(Household(tiers=()), "promote", 1)
    assert isinstance(answer, Failed)
    assert "placement.promote_to" in answer.message


def test_a_pinned_expert_stays_whatever_the_router_does() -> None:
    home = Household()
    assert ask(home, "pin", 3, 7) == Text("m", "promoting and pinning 1 expert, 100 B")
    assert ask(home, "pin", 3, 7) == Text("m", "1 expert resident already, pinned now")
    for _ in range(3):
        home.router.choose(5, 6, tokens=1000)
        home.look()
    assert 15 in home.resident
    assert len(home.resident) == 4


def test_what_was_demoted_by_hand_stays_out_until_it_is_left_to_the_policy() -> None:
    home = Household()
    home.router.choose(5, 6)
    home.look()
    assert ask(home, "demote", 1) == Text("m", "demoting 2 experts, 200 B; kept out until promoted or unpinned")
    home.router.choose(5, 6)
    home.look()
    assert home.resident == {8, 9}
    ask(home, "unpin", 1)
    home.router.choose(5, 6)
    home.look()
    assert home.resident == {5, 6, 8, 9}


def test_the_coldest_make_room_for_what_is_promoted_by_hand() -> None:
    home = Household()
    home.router.choose(5, 6, tokens=500)
    home.look()
    answer = ask(home, "promote", 1, 0)
    assert answer == Text("m", "promoting 1 expert, 100 B, demoting 1 expert, 100 B for it")
    assert 0 in home.resident
    assert len(home.resident) == 4


def test_heat_is_saved_when_the_router_rests_and_a_later_start_begins_with_it(tmp_path: Path) -> None:
    path = tmp_path / "m.heat"
    home = Household(flusher=HeatFlusher(path, digest="digest", now_s=0.0))
    home.router.choose(5, 6)
    home.look()
    assert not path.exists()
    home.look(after_s=3.0)
    saved = read_heat(path, digest="digest", experts=16)
    assert saved is not None
    again = Household(heat=saved)
    settle(again)
    assert again.resident == {5, 6, 8, 9}


def test_a_disk_that_refuses_heat_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    home = Household(flusher=HeatFlusher(blocked / "m.heat", digest="digest", now_s=0.0))
    home.router.choose(5, 6)
    home.look()
    home.look(after_s=3.0)
    assert "heat cannot be saved" in caplog.text


def test_a_backend_that_counts_other_experts_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    home = Household()
    wrong = np.ones((5, 5), np.uint32)
    home.router.counts = RouterCounts(wrong, wrong, 5, 0)
    home.look()
    assert "the backend counts experts of shape (5, 5)" in caplog.text
    assert "cannot watch the router" in home.residency.moving


def test_closing_joins_the_thread_saves_and_closes_the_movers(tmp_path: Path) -> None:
    home = Household(flusher=HeatFlusher(tmp_path / "m.heat", digest="digest", now_s=0.0))
    home.router.choose(5, 6)
    home.steward.look()
    home.steward.start()
    home.steward.ask(Move("m", "demote", 1, 5))
    home.steward.close()
    assert (tmp_path / "m.heat").exists()
    assert home.movers[0].closed
    assert not home.steward._thread.is_alive()


def test_a_token_slower_than_a_look_teaches_all_its_layers() -> None:
    """Its first layer's choice comes in one look, its last layer's in another, in which no token begins."""
    router = FakeRouter()
    learning = Learning(paper_index(), router, policy=Hottest())
    hits: list[int] = []
    for token in range(3):
        for row in range(LAYERS):
            decode = np.zeros((LAYERS, EXPERTS), np.uint32)
            decode[row, :USED] = 1
            router.counts = RouterCounts(decode, np.zeros_like(decode), int(row == 0), 0)
            assert learning.learn(lambda used: hits.append(int(used.sum())), token) == (row == 0)
    assert hits == [USED, LAYERS * USED, LAYERS * USED]
    first, last = learning.heat.weight.reshape(LAYERS, EXPERTS)
    assert last.sum() == pytest.approx(first.sum() * 2 / 3, rel=0.01), "the last token's rest waits for the next token"
