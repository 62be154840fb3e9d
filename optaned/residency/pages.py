"""The pages of one loaded model: copied to DRAM and dropped again by byte range, with the ledger always true.

Moves are made in batches of a few calls under a lock, each call at most 4 MiB, by several threads. A batch is resident
as a whole or not at all. Knows shards and offsets; knows no tensor, no expert and no budget.
"""

from __future__ import annotations

import mmap
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from optaned.domain.model import ByteRange
from optaned.hooks.drivers import Moved
from optaned.residency.faults import explain
from optaned.residency.kernel import MADV_DONTNEED, MADV_POPULATE_READ, MADV_POPULATE_WRITE, Kernel
from optaned.residency.ledger import Extent, Extents, droppable, widened
from optaned.residency.maps import Mapping
from optaned.residency.numa import on_node, strays
from optaned.residency.pace import Pace

# A stop signal waits for the call at hand: 4 MiB delay it by 14 ms, 2 GiB by up to 6 s.
PIECE_BYTES = 4 << 20
CLOSED = "the model is closed"


class Piece(NamedTuple):
    """Whole pages at an address, for one call."""

    address: int
    size_bytes: int


class ModelPages:
    """Implements `Pages`. Every method may be called from any thread; `close` it before the model is freed."""

    def __init__(
        self,
        mappings: Sequence[Mapping],
        kernel: Kernel,
        *,
        in_place: Sequence[bool],
        pace: Pace | None = None,
        workers: int = 1,
    ) -> None:
        """Take over mappings that `overlay` made. `in_place` says of each file whether its bytes are read where they lie.

        Of those files, dropped pages are mapped again at once, so that the next token does not pay for it.
        """
        self._kernel = kernel
        self._in_place = tuple(in_place)
        self._pace = pace or Pace()
        self._by_file = [
            sorted((m for m in mappings if m.file == f), key=lambda m: m.offset) for f in range(len(in_place))
        ]
        self._wanted = [Extents() for _ in in_place]
        self._workers = ThreadPoolExecutor(workers, "optaned-move") if workers > 1 else None
        self._batch_bytes = PIECE_BYTES * workers
        self._lock = threading.Lock()
        self._closed = False
        self._stray_bytes = 0.0

    @property
    def mappings(self) -> tuple[Mapping, ...]:
        """Return where the files lie, in the order of files and offsets."""
        return tuple(mapping for mappings in self._by_file for mapping in mappings)

    @property
    def resident_bytes(self) -> int:
        """Return the bytes that were asked for and are copied."""
        with self._lock:
            return sum(wanted.size_bytes for wanted in self._wanted)

    @property
    def resident_page_bytes(self) -> int:
        """Return the same in whole pages: what the kernel should show as anonymous memory."""
        with self._lock:
            return sum(page_bytes(wanted) for wanted in self._wanted)

    def resident_of(self, ranges: Sequence[ByteRange]) -> int:
        """Return how many bytes of these ranges are copied."""
        with self._lock:
            return sum(self._wanted[r.shard].overlap(r.offset, r.end) for r in ranges)

    @property
    def stray_bytes(self) -> int:
        """Return how many bytes, of those copied to a named NUMA node, landed elsewhere since it was full (a sample)."""
        return int(self._stray_bytes)

    def settle(self) -> str | None:
        """Map the bytes of in-place files now, so that the first tokens do not pay; return why not, where it failed."""
        places = [m for m in self.mappings if self._in_place[m.file]]
        pieces = [p for m in places for p in _pieces(m.address, m.size_bytes)]
        return self._call(pieces, MADV_POPULATE_READ, None)[1]

    def promote(self, ranges: Sequence[ByteRange], *, numa_node: int | None) -> Moved:
        """Copy ranges into DRAM, in their order. Returns the bytes that were not copied before and are now.

        After a fault all ranges, or parts of one, before the fault are resident, and nothing behind it.
        """
        if (stray := self._first_unmapped(ranges)) is not None:
            return Moved(0, stray)
        moved = 0
        for batch in _batches(ranges, self._batch_bytes):
            if not self._pace.wait(sum(part.size_bytes for part in batch)):
                return Moved(moved, CLOSED)
            with self._lock, self._pace.moving():
                if self._closed:
                    return Moved(moved, CLOSED)
                done, fault = self._promote(batch, numa_node)
            moved += done
            if fault is not None:
                return Moved(moved, fault)
        return Moved(moved)

    def demote(self, ranges: Sequence[ByteRange]) -> Moved:
        """Drop the copies: reads go home. Returns the bytes given back; a page that a neighbour needs stays."""
        if (stray := self._first_unmapped(ranges)) is not None:
            return Moved(0, stray)
        moved = 0
        for batch in _batches(ranges, self._batch_bytes):
            with self._lock, self._pace.moving():
                if self._closed:
                    return Moved(moved, CLOSED)
                gone = [(p.shard, e) for p in batch for e in self._wanted[p.shard].remove(p.offset, p.end)]
                dropped, fault = self._drop(gone)
            moved += dropped
            if fault is not None:
                return Moved(moved, fault)
        return Moved(moved)

    def close(self) -> None:
        """Finish the batch at hand and move nothing more. Copies stay until the model is freed, which must be later."""
        self._pace.close()
        with self._lock:
            self._closed = True
        if self._workers is not None:
            self._workers.shutdown()

    # ---- one batch, under the lock -----------------------------------------------------------------------------------

    def _promote(self, batch: Sequence[ByteRange], node: int | None) -> tuple[int, str | None]:
        new = [(part.shard, extent) for part in batch for extent in self._wanted[part.shard].add(part.offset, part.end)]
        pieces: list[Piece] = []
        owners: list[int] = []
        for number, (shard, extent) in enumerate(new):
            for piece in self._pieces_of(shard, widened(extent, mmap.PAGESIZE)):
                pieces.append(piece)
                owners.append(number)
        failed, fault = self._call(pieces, MADV_POPULATE_WRITE, node)
        kept = new if failed is None else new[: owners[failed]]
        if failed is not None:
            self._forget(new[len(kept) :])
        size = sum(end - start for _, (start, end) in kept)
        if node is not None and failed is None and pieces:
            # Where the kernel does not tell (seccomp), nothing is known to have strayed.
            with suppress(OSError):
                self._stray_bytes += size * strays(self._kernel, [piece.address for piece in pieces], node)
        return size, fault

    def _forget(self, gone: Sequence[tuple[int, Extent]]) -> None:
        """Undo what a failed batch had begun, so that ledger and kernel agree again."""
        for shard, extent in gone:
            self._wanted[shard].remove(*extent)
        self._drop(gone)

    def _drop(self, gone: Sequence[tuple[int, Extent]]) -> tuple[int, str | None]:
        """Drop the pages of extents that are wanted no more; return their bytes and why some could not be dropped."""
        dropped, fault = 0, None
        for shard, (start, end) in gone:
            pieces = self._pieces_of(shard, droppable(self._wanted[shard], (start, end), mmap.PAGESIZE))
            failed, why = self._call(pieces, MADV_DONTNEED, None)
            if failed is None:
                dropped += end - start
                if self._in_place[shard]:
                    self._call(pieces, MADV_POPULATE_READ, None)
            else:
                fault = fault or why
                self._wanted[shard].add(start, end)
                self._call(pieces[:failed], MADV_POPULATE_WRITE, None)
        return dropped, fault

    def _call(self, pieces: Sequence[Piece], advice: int, node: int | None) -> tuple[int | None, str | None]:
        """Advise all pieces; return the number of the first that failed, and why."""

        def one(piece: Piece) -> OSError | None:
            try:
                with on_node(self._kernel, node):
                    self._kernel.advise(piece.address, piece.size_bytes, advice)
            except OSError as error:
                return error
            return None

        several = self._workers is not None and len(pieces) > 1
        outcomes = self._workers.map(one, pieces) if several and self._workers else map(one, pieces)
        for number, error in enumerate(outcomes):
            if error is not None:
                list(outcomes)  # the others have to end before anything is undone
                return number, explain(error)
        return None, None

    def _pieces_of(self, shard: int, extent: Extent) -> list[Piece]:
        start, end = extent
        if start >= end:
            return []
        mapping = self._mapping(shard, start)
        if mapping is None:
            return []
        return list(_pieces(mapping.address_of(start), min(end, mapping.end) - start))

    def _mapping(self, shard: int, offset: int) -> Mapping | None:
        mappings = self._by_file[shard]
        number = bisect_right(mappings, offset, key=lambda m: m.offset) - 1
        return mappings[number] if number >= 0 and offset < mappings[number].end else None

    def _first_unmapped(self, ranges: Sequence[ByteRange]) -> str | None:
        for part in ranges:
            mapping = self._mapping(part.shard, part.offset) if 0 <= part.shard < len(self._by_file) else None
            if mapping is None or part.end > mapping.end:
                return (
                    f"bytes {part.offset} to {part.end} of shard {part.shard} are not mapped; the library copied them"
                )
        return None


def page_bytes(wanted: Extents) -> int:
    """Return the size of all pages that hold a wanted byte."""
    total = last = 0
    for extent in wanted:
        start, end = widened(extent, mmap.PAGESIZE)
        total += end - max(start, last)
        last = end
    return total


def _pieces(address: int, size_bytes: int) -> Iterator[Piece]:
    for begin in range(0, size_bytes, PIECE_BYTES):
        yield Piece(address + begin, min(PIECE_BYTES, size_bytes - begin))


def _batches(ranges: Sequence[ByteRange], size_bytes: int) -> Iterator[list[ByteRange]]:
    """Cut ranges, in order, into batches of at most `size_bytes`."""
    batch: list[ByteRange] = []
    room = size_bytes
    for whole in ranges:
        offset = whole.offset
        while offset < whole.end:
            part = ByteRange(whole.shard, offset, min(whole.end - offset, room))
            batch.append(part)
            offset, room = part.end, room - part.size_bytes
            if room == 0:
                yield batch
                batch, room = [], size_bytes
    if batch:
        yield batch
