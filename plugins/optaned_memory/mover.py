"""Moves a model's bytes into one memory tier, never past what the tier may hold and what the kernel has left.

Knows the tier's room through a question; moves through `Pages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from optaned.api import ByteRange, Moved, OptanedError, Pages, format_bytes

# Room is asked for this often: a model's trunk is one call, and memory may run out during it.
_SLICE_BYTES = 64 << 20


class MemoryMover:
    """`room(held_bytes)` says how many bytes may still come, given what this mover holds. One thread."""

    def __init__(self, name: str, pages: Pages, numa_node: int | None, room: Callable[[int], int]) -> None:
        self._name = name
        self._pages = pages
        self._node = numa_node
        self._room = room
        self._held_bytes = 0

    def promote(self, ranges: Sequence[ByteRange]) -> Moved:
        """Copy ranges in order while there is room; the fault says what ran out."""
        moved = 0
        for part in _slices(ranges):
            fault = self._refusal(sum(r.size_bytes for r in part))
            if fault is not None:
                return Moved(moved, fault)
            done = self._pages.promote(part, numa_node=self._node)
            self._held_bytes += done.size_bytes
            moved += done.size_bytes
            if done.fault is not None:
                return Moved(moved, f"{self._name}: {done.fault}")
        return Moved(moved)

    def demote(self, ranges: Sequence[ByteRange]) -> Moved:
        """Drop copies."""
        done = self._pages.demote(ranges)
        self._held_bytes = max(0, self._held_bytes - done.size_bytes)
        return done if done.fault is None else Moved(done.size_bytes, f"{self._name}: {done.fault}")

    def close(self) -> None:
        """The copies live as long as the model's mappings; nothing else is held."""

    def _refusal(self, size_bytes: int) -> str | None:
        try:
            left = self._room(self._held_bytes)
        except OptanedError as error:
            return f"{self._name}: {error}"
        if size_bytes <= left:
            return None
        return (
            f"{self._name}: {format_bytes(size_bytes)} do not fit, {format_bytes(max(0, left))} are left; "
            "raise its budget, or end what else uses memory"
        )


def _slices(ranges: Sequence[ByteRange]) -> Iterator[list[ByteRange]]:
    """Yield ranges in order, cut where they are long, as lists of at most a slice."""
    part: list[ByteRange] = []
    size = 0
    for whole in ranges:
        for offset in range(whole.offset, whole.end, _SLICE_BYTES):
            cut = ByteRange(whole.shard, offset, min(_SLICE_BYTES, whole.end - offset))
            if part and size + cut.size_bytes > _SLICE_BYTES:
                yield part
                part, size = [], 0
            part.append(cut)
            size += cut.size_bytes
    if part:
        yield part
