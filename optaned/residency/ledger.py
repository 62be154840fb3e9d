"""Which bytes of a file are wanted in a faster tier, and which pages follow from that. Pure arithmetic.

Experts end in the middle of a page that belongs to their neighbour too. Wanted bytes are kept as extents, and a page stays
as long as any of its bytes is wanted: no counter can go wrong when a range is asked for twice or by halves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Extent = tuple[int, int]


class Extents:
    """Disjoint half-open extents [start, end) in order; neighbours that touch are one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.size_bytes = 0

    def __iter__(self) -> Iterator[Extent]:
        return iter(zip(self._starts, self._ends, strict=True))

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> list[Extent]:
        """Want [start, end); return the parts that were not wanted before."""
        if start >= end:
            return []
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        inside = list(zip(self._starts[first:last], self._ends[first:last], strict=True))
        new = _without((start, end), inside)
        low = min([start, *(s for s, _ in inside)])
        high = max([end, *(e for _, e in inside)])
        self._starts[first:last], self._ends[first:last] = [low], [high]
        self.size_bytes += sum(e - s for s, e in new)
        return new

    def remove(self, start: int, end: int) -> list[Extent]:
        """Want [start, end) no longer; return the parts that were wanted."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        inside = list(zip(self._starts[first:last], self._ends[first:last], strict=True))
        if start >= end or not inside:
            return []
        rest = [part for extent in inside for part in _without(extent, [(start, end)])]
        self._starts[first:last], self._ends[first:last] = [s for s, _ in rest], [e for _, e in rest]
        removed = [(max(s, start), min(e, end)) for s, e in inside]
        self.size_bytes -= sum(e - s for s, e in removed)
        return removed

    def overlap(self, start: int, end: int) -> int:
        """Return how many bytes of [start, end) are wanted."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        return sum(
            max(0, min(e, end) - max(s, start))
            for s, e in zip(self._starts[first:last], self._ends[first:last], strict=True)
        )


def widened(extent: Extent, page: int) -> Extent:
    """Return the whole pages that hold an extent."""
    start, end = extent
    return start // page * page, -(-end // page) * page


def droppable(wanted: Extents, extent: Extent, page: int) -> Extent:
    """Return the whole pages that held an extent which is wanted no more, without those that a neighbour still needs."""
    start, end = widened(extent, page)
    if start < end and wanted.overlap(start, start + page):
        start += page
    if start < end and wanted.overlap(end - page, end):
        end -= page
    return start, max(start, end)


def _without(extent: Extent, holes: list[Extent]) -> list[Extent]:
    """Return an extent's parts outside the holes, which are in order and disjoint."""
    parts = []
    start, end = extent
    for hole_start, hole_end in holes:
        if start < min(hole_start, end):
            parts.append((start, min(hole_start, end)))
        start = max(start, hole_end)
    if start < end:
        parts.append((start, end))
    return parts
