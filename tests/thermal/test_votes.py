"""Votes can only cool."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.thermal import Level, Proposal, Vote
from optaned.thermal.votes import apply_votes, hold

COOL = Proposal(Level.COOL, 1.0, 0.0, ("all is well",))
shares = st.none() | st.floats(allow_nan=True, allow_infinity=True)
votes = st.builds(
    Vote, level=st.none() | st.sampled_from(Level), duty=shares, cooling=shares, reason=st.text(max_size=5)
)


@given(st.lists(votes, max_size=5))
def test_no_vote_ever_heats(cast: list[Vote]) -> None:
    for before in (COOL, Proposal(Level.HOT, 0.4, 1.0), Proposal(Level.TRIP, 0.0, 1.0)):
        after = apply_votes(before, cast)
        assert after.level >= before.level
        assert 0 <= after.duty <= before.duty
        assert before.cooling <= after.cooling <= 1
        assert set(before.reasons) <= set(after.reasons)


@given(st.lists(votes, max_size=5))
def test_no_vote_ever_trips(cast: list[Vote]) -> None:
    assert apply_votes(COOL, cast).level <= Level.CRITICAL


def test_a_vote_for_a_level_brings_what_belongs_to_it() -> None:
    assert apply_votes(COOL, [Vote(level=Level.CRITICAL)]) == Proposal(Level.CRITICAL, 0.0, 1.0, COOL.reasons)
    assert apply_votes(COOL, [Vote(level=Level.HOT)]).duty < 1


def test_a_vote_that_changes_something_gives_its_reason() -> None:
    assert apply_votes(COOL, [Vote(duty=0.5, reason="noisy")]).reasons == ("all is well", "noisy")
    assert apply_votes(COOL, [Vote(duty=math.nan, reason="broken")]) is COOL


def test_a_latch_holds_a_trip() -> None:
    assert hold(COOL, "tripped before") == Proposal(Level.TRIP, 0.0, 1.0, ("tripped before", "all is well"))
