"""Which slot suits a prompt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optaned.engine.slots import Slot, choose_slot, common_prefix, reusable

tokens = st.lists(st.integers(0, 2), max_size=12)


@given(tokens, tokens)
def test_common_prefix_is_the_longest_one(left: list[int], right: list[int]) -> None:
    length = common_prefix(left, right)
    assert left[:length] == right[:length]
    assert length in (len(left), len(right)) or left[length] != right[length]


@given(tokens, tokens.filter(len), st.booleans())
def test_the_last_prompt_token_is_never_reused(held: list[int], prompt: list[int], can_cut: bool) -> None:
    keep = reusable(held, prompt, can_cut=can_cut)
    assert keep < len(prompt)
    assert held[:keep] == prompt[:keep]
    assert can_cut or keep in (0, len(held))


def test_an_idle_slot_with_more_in_common_wins_over_a_fresher_one() -> None:
    slots = [Slot(0, [1, 2, 3], used=1), Slot(1, [1, 2], used=9), Slot(2)]
    assert choose_slot(slots, [1, 2, 3, 4], can_cut=True) == (slots[0], 3)


def test_with_nothing_in_common_a_slot_that_was_never_used_is_taken() -> None:
    slots = [Slot(0, [1, 2, 3], used=1), Slot(1, [7], used=2), Slot(2)]
    assert choose_slot(slots, [9, 9], can_cut=True) == (slots[2], 0)
