"""When a guard of our own is started, killed and left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optaned.server.guard_charge import MOST_BACKOFF_S, MOST_BACKOFF_SPOKEN_S, Charge, Step, after_death, next_step

SPOKE = Charge(started_s=100.0, spoke=True)


def step(charge: Charge, now_s: float, *, is_fresh: bool = False, is_alive: bool = True) -> Step:
    return next_step(charge, is_fresh=is_fresh, is_alive=is_alive, now_s=now_s, stale_after_s=2.0)


def test_a_fresh_word_needs_nothing_whoever_says_it() -> None:
    assert step(Charge(), 0.0, is_fresh=True, is_alive=False) is Step.WAIT
    assert step(SPOKE, 200.0, is_fresh=True) is Step.WAIT


def test_silence_without_a_child_starts_one_when_it_is_time() -> None:
    assert step(Charge(start_at_s=5.0), 4.9, is_alive=False) is Step.WAIT
    assert step(Charge(start_at_s=5.0), 5.0, is_alive=False) is Step.START


def test_a_child_has_time_to_say_its_first_word() -> None:
    starting = Charge(started_s=100.0, silent_since_s=100.0)
    assert step(starting, 110.0) is Step.WAIT
    assert step(starting, 115.1) is Step.KILL


def test_a_child_that_falls_silent_is_killed_after_two_seconds() -> None:
    silent = replace(SPOKE, silent_since_s=200.0)
    assert step(silent, 202.0) is Step.WAIT
    assert step(silent, 202.1) is Step.KILL


def test_one_that_worked_is_replaced_at_once() -> None:
    assert after_death(SPOKE, now_s=150.0).start_at_s == 150.0


@pytest.mark.parametrize(("spoke", "most_s"), [(True, MOST_BACKOFF_SPOKEN_S), (False, MOST_BACKOFF_S)])
def test_one_that_keeps_dying_is_replaced_with_growing_patience(spoke: bool, most_s: float) -> None:
    charge, delays = Charge(), []
    for _ in range(12):
        charge = after_death(replace(charge, started_s=100.0, spoke=spoke), now_s=100.5)
        delays.append(charge.start_at_s - 100.5)
    assert delays == sorted(delays)
    assert delays[0] == pytest.approx(0.2)
    assert delays[-1] == pytest.approx(most_s)
    assert charge.deaths == 12
