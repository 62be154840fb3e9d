"""Which shard goes to which folder. Pure: sizes and free bytes come in, names go out.

Each folder gets bytes in proportion to its read bandwidth, so that all sockets read a model together; what lies somewhere
already stays there; nothing is put where it does not fit. Shards are taken in their order, so that the same answer comes
for a download that has only begun as for the same one later, as long as sizes were guessed well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optaned.units import format_bytes


@dataclass(frozen=True, slots=True)
class Room:
    """A place for shards: `free_bytes` of file system `device`, which other places may share. Bandwidth None: unknown."""

    name: str
    device: int
    free_bytes: int
    read_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class Parcel:
    """A file to be placed. `at` names the place that it has to go to, because it lies there in whole or in part.

    `there_bytes` of it lie on file system `device` already and need no room on that one.
    """

    name: str
    size_bytes: int
    at: str | None = None
    device: int | None = None
    there_bytes: int = 0

    def needs(self, room: Room) -> int:
        """Return the bytes that it takes of a place's free ones."""
        return self.size_bytes - (self.there_bytes if self.device == room.device else 0)


@dataclass(frozen=True, slots=True)
class Assigned:
    """The place of each parcel by name, and one line for each thing that does not fit."""

    places: dict[str, str]
    faults: tuple[str, ...] = ()


def assign(parcels: Sequence[Parcel], rooms: Sequence[Room], *, may_cut: bool = True) -> Assigned:
    """Place every parcel, or say what does not fit; `may_cut`: a parcel that is too large could be cut, so say that."""
    in_order = _greedy(parcels, rooms, may_cut=may_cut)
    if not in_order.faults:
        return in_order
    # Large ones first pack more tightly; only where order alone left no room.
    packed = _greedy(sorted(parcels, key=lambda parcel: -parcel.size_bytes), rooms, may_cut=may_cut)
    return in_order if packed.faults else packed


def _greedy(parcels: Iterable[Parcel], rooms: Sequence[Room], *, may_cut: bool) -> Assigned:
    free = {room.device: room.free_bytes for room in rooms}
    load: dict[str, int] = defaultdict(int)
    places: dict[str, str] = {}
    by_name = {room.name: room for room in rooms}
    weights = _weights(rooms)
    homeless = []
    for parcel in sorted(parcels, key=lambda each: each.at is None):  # what lies there first; sorting is stable
        choices = [room for room in rooms if free[room.device] >= parcel.needs(room)]
        choices = [by_name[parcel.at]] if parcel.at else choices
        if not choices:
            homeless.append(parcel)
            continue
        chosen = min(choices, key=lambda room: (load[room.name] + parcel.size_bytes) / weights[room.name])
        places[parcel.name] = chosen.name
        load[chosen.name] += parcel.size_bytes
        free[chosen.device] -= parcel.needs(chosen)
    return Assigned(places, (*_homeless_lines(homeless, rooms, may_cut=may_cut), *_overfull_lines(free, rooms)))


def _weights(rooms: Sequence[Room]) -> dict[str, float]:
    """Return bandwidths, or the same weight for all where any is unknown: half a knowledge would starve a mount."""
    if all(room.read_gbps for room in rooms):
        return {room.name: room.read_gbps or 1.0 for room in rooms}
    return {room.name: 1.0 for room in rooms}


def _homeless_lines(parcels: Sequence[Parcel], rooms: Sequence[Room], *, may_cut: bool) -> list[str]:
    if not parcels:
        return []
    largest = max(room.free_bytes for room in rooms)
    single = [parcel for parcel in parcels if parcel.size_bytes > largest]
    lines = [
        f"{parcel.name}: {format_bytes(parcel.size_bytes)} fit on no mount (the largest has {format_bytes(largest)} "
        f"free); free some{', or let --resplit cut it' if may_cut else ''}"
        for parcel in single
    ]
    if len(single) < len(parcels):
        need = sum(parcel.size_bytes for parcel in parcels)
        devices = {room.device: f"{room.name} {format_bytes(room.free_bytes)}" for room in rooms}
        lines.append(
            f"no room for {len(parcels)} more file{'s' if len(parcels) > 1 else ''}, {format_bytes(need)} in all "
            f"(free before: {', '.join(devices.values())}); free some, or add a --to"
        )
    return lines


def _overfull_lines(free: dict[int, int], rooms: Sequence[Room]) -> list[str]:
    names = {room.device: room.name for room in rooms}
    return [
        f"{names[device]}: {format_bytes(-left)} too few are free for what was begun there; free some"
        for device, left in free.items()
        if left < 0
    ]
