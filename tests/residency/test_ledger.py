"""The ledger against the plainest model of it: a set of bytes."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from optaned.residency.ledger import Extents, droppable, widened

PAGE = 8
SPANS = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1]))
STEPS = st.lists(st.tuples(st.booleans(), SPANS), max_size=40)


def bytes_of(extents: object) -> set[int]:
    return {n for start, end in extents for n in range(start, end)}  # type: ignore[attr-defined]


@given(STEPS)
def test_extents_are_a_set_of_bytes(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    extents, truth = Extents(), set[int]()
    for add, (start, end) in steps:
        span = set(range(start, end))
        if add:
            assert bytes_of(extents.add(start, end)) == span - truth
            truth |= span
        else:
            assert bytes_of(extents.remove(start, end)) == span & truth
            truth -= span
        assert bytes_of(extents) == truth
        assert extents.size_bytes == len(truth)
        assert extents.overlap(10, 30) == len(truth & set(range(10, 30)))
        parts = list(extents)
        assert all(a_end < b_start for (_, a_end), (b_start, _) in itertools.pairwise(parts))


@given(STEPS)
def test_pages_in_memory_are_those_that_hold_a_wanted_byte(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    extents, pages = Extents(), set[int]()
    for add, (start, end) in steps:
        if add:
            for new in extents.add(start, end):
                low, high = widened(new, PAGE)
                pages |= set(range(low // PAGE, high // PAGE))
        else:
            for gone in extents.remove(start, end):
                low, high = droppable(extents, gone, PAGE)
                pages -= set(range(low // PAGE, high // PAGE))
        assert pages == {byte // PAGE for byte in bytes_of(extents)}


def test_a_page_between_two_experts_goes_with_the_last() -> None:
    extents = Extents()
    extents.add(0, 12)
    extents.add(12, 24)
    assert [droppable(extents, gone, PAGE) for gone in extents.remove(0, 12)] == [(0, 8)]
    assert [droppable(extents, gone, PAGE) for gone in extents.remove(12, 24)] == [(8, 24)]
