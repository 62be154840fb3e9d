"""Moves stay within budgets and bytes, need a reason, and come to rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from optaned.placement.moves import HOME, MoveRules, Moves, Standing, Step, expected_uses, plan_moves

RULES = MoveRules(round_bytes=1000, uses_per_token=2.0, payback_tokens=64.0, hysteresis=0.2)


def standing(tier_of: list[int], *, budgets: tuple[int, ...] = (20,), size: int = 10, **more: Any) -> Standing:
    count = len(tier_of)
    flags = {name: np.isin(np.arange(count), more.get(name, ())) for name in ("pinned", "barred")}
    return Standing(np.array(tier_of), np.full(count, size), budgets, flags["pinned"], flags["barred"])


def after(moves: Moves, before: Standing) -> Standing:
    tier_of = before.tier_of.copy()
    for step in moves.demote:
        assert tier_of[step.expert] == step.tier
        tier_of[step.expert] = HOME
    for step in moves.promote:
        assert tier_of[step.expert] == HOME
        tier_of[step.expert] = step.tier
    return replace(before, tier_of=tier_of)


def test_the_hottest_fill_the_best_tier_first() -> None:
    moves = plan_moves([1, 5, 3, 4], standing([HOME] * 4, budgets=(20, 10)), RULES)
    assert moves == Moves((), (Step(1, 0), Step(3, 0), Step(2, 1)))


def test_a_colder_expert_makes_room_for_a_hotter_one() -> None:
    moves = plan_moves([5, 1, 4, 0.1], standing([HOME, 0, 0, HOME]), RULES)
    assert moves == Moves((Step(1, 0),), (Step(0, 0),))


def test_nobody_changes_places_for_a_tenth() -> None:
    assert plan_moves([1.1, 1.0], standing([HOME, 0], budgets=(10,)), RULES) == Moves()
    assert plan_moves([1.3, 1.0], standing([HOME, 0], budgets=(10,)), RULES).promote == (Step(0, 0),)


def test_a_move_must_save_more_bytes_than_it_reads() -> None:
    rare = [2.0, 0.01, 0.0]
    assert plan_moves(rare, standing([0, HOME, HOME]), RULES) == Moves()
    assert plan_moves(rare, standing([0, HOME, HOME]), replace(RULES, payback_tokens=200)).promote == (Step(1, 0),)
    assert plan_moves(rare, standing([0, HOME, HOME]), replace(RULES, payback_tokens=math.inf)).promote == (Step(1, 0),)


def test_without_exchange_only_free_room_is_filled() -> None:
    rules = replace(RULES, exchange=False)
    assert plan_moves([9, 1, 1], standing([HOME, 0, 0]), rules) == Moves()
    assert plan_moves([9, 1, 1], standing([HOME, 0, HOME]), rules) == Moves((), (Step(0, 0),))


def test_pinned_experts_come_in_whatever_they_are_worth_and_stay() -> None:
    moves = plan_moves([0, 5, 4, 9], standing([HOME, 0, 0, HOME], pinned=(0, 2)), replace(RULES, exchange=False))
    assert moves == Moves((Step(1, 0),), (Step(0, 0),))
    full = standing([HOME, 0, 0, HOME], pinned=(0, 1, 2))
    assert plan_moves([0, 5, 4, 9], full, RULES) == Moves()


def test_barred_experts_stay_out() -> None:
    assert plan_moves([9, 1], standing([HOME, HOME], barred=(0,)), RULES).promote == (Step(1, 0),)


def test_a_budget_that_was_stepped_down_is_kept_to_at_once_the_coldest_first() -> None:
    before = standing([0, 0, 0, 0], budgets=(20,), pinned=(1,))
    assert plan_moves([3, 0, 1, 2], before, RULES).demote == (Step(2, 0), Step(3, 0))


def test_a_round_promotes_at_most_its_bytes() -> None:
    moves = plan_moves([4, 3, 2, 1], standing([HOME] * 4, budgets=(100,)), replace(RULES, round_bytes=25))
    assert moves.promote == (Step(0, 0), Step(1, 0))
    assert plan_moves([4, 3], standing([HOME] * 2), replace(RULES, round_bytes=9)) == Moves()


def test_several_small_ones_go_for_a_large_one_only_if_that_pays() -> None:
    before = Standing(np.array([HOME, 0, 0]), np.array([20, 10, 10]), (20,), np.zeros(3, bool), np.zeros(3, bool))
    assert plan_moves([5, 1, 1], before, RULES) == Moves((Step(1, 0), Step(2, 0)), (Step(0, 0),))
    assert plan_moves([5, 1, 4.5], before, RULES) == Moves()


def test_faulty_scores_count_for_nothing() -> None:
    assert expected_uses([math.nan, -1, math.inf, 3, 1], 8).tolist() == [0, 0, 0, 6, 2]
    assert expected_uses([0, 0], 8).tolist() == [0, 0]


@dataclass(frozen=True)
class Case:
    scores: list[float]
    standing: Standing
    rules: MoveRules


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count, tiers = draw(st.integers(1, 12)), draw(st.integers(1, 3))

    def each(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    now = Standing(
        np.array(each(st.integers(HOME, tiers - 1))),
        np.array(each(st.integers(1, 9))),
        tuple(draw(st.lists(st.integers(0, 40), min_size=tiers, max_size=tiers))),
        np.array(each(st.booleans())),
        np.array(each(st.booleans())),
    )
    rules = MoveRules(
        round_bytes=draw(st.integers(0, 60)),
        uses_per_token=draw(st.floats(0.1, 20)),
        payback_tokens=draw(st.sampled_from([1.0, 64.0, math.inf])),
        hysteresis=draw(st.sampled_from([0.0, 0.2, 1.0])),
        exchange=draw(st.booleans()),
    )
    return Case(each(st.floats(0, 10)), now, rules)


def held(now: Standing, tier: int) -> int:
    return int(now.sizes[now.tier_of == tier].sum())


@given(case=cases())
def test_no_round_overfills_a_tier_reads_too_much_or_moves_anything_twice(case: Case) -> None:
    moves = plan_moves(case.scores, case.standing, case.rules)
    now = after(moves, case.standing)
    assert all(held(now, tier) <= budget for tier, budget in enumerate(case.standing.budgets))
    assert sum(int(now.sizes[step.expert]) for step in moves.promote) <= case.rules.round_bytes
    moved = [step.expert for step in (*moves.demote, *moves.promote)]
    assert len(moved) == len(set(moved))


@given(case=cases())
def test_pinned_experts_go_only_where_a_tier_holds_more_than_it_may(case: Case) -> None:
    overfull = {tier for tier, budget in enumerate(case.standing.budgets) if held(case.standing, tier) > budget}
    moves = plan_moves(case.scores, case.standing, case.rules)
    assert all(step.tier in overfull for step in moves.demote if case.standing.pinned[step.expert])
    assert not any(
        case.standing.barred[step.expert] and not case.standing.pinned[step.expert] for step in moves.promote
    )


@given(case=cases())
def test_with_the_same_scores_moves_come_to_rest(case: Case) -> None:
    now = case.standing
    for _ in range(40):
        moves = plan_moves(case.scores, now, case.rules)
        if moves == Moves():
            return
        now = after(moves, now)
    raise AssertionError("it never comes to rest")


@given(
    scores=st.lists(st.floats(0.01, 10), min_size=2, max_size=12),
    wobble=st.lists(st.floats(1.0, 1.19), min_size=12, max_size=12),
    resident=st.integers(1, 11),
)
def test_the_best_are_not_pushed_out_by_scores_that_wobble_within_the_margin(
    scores: list[float], wobble: list[float], resident: int
) -> None:
    tier_of = np.full(len(scores), HOME)
    tier_of[np.argsort(-np.array(scores))[:resident]] = 0
    full = standing(tier_of.tolist(), budgets=(10 * min(resident, len(scores)),))
    shaken = np.array(scores) * np.array(wobble[: len(scores)])
    assert plan_moves(shaken, full, replace(RULES, payback_tokens=math.inf)) == Moves()


@given(case=cases())
def test_who_came_in_is_not_pushed_out_for_the_same_reason(case: Case) -> None:
    # Where a tier holds more than it may, a pinned expert may have to go, and comes back before all others.
    assume(all(held(case.standing, tier) <= budget for tier, budget in enumerate(case.standing.budgets)))
    moves = plan_moves(case.scores, case.standing, case.rules)
    again = plan_moves(case.scores, after(moves, case.standing), case.rules)
    came = {step.expert for step in moves.promote}
    assert not came & {step.expert for step in again.demote}
