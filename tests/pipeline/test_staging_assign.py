"""Shards are spread by bandwidth, stay where they lie, and are never put where they do not fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optaned.pipeline.staging.assign import Parcel, Room, assign

GIB = 1 << 30


def shards(count: int, size_bytes: int = 45 * GIB) -> list[Parcel]:
    return [Parcel(f"m-{n + 1:05}-of-{count:05}.gguf", size_bytes) for n in range(count)]


def test_two_sockets_get_the_same() -> None:
    rooms = [Room("pmem0", 1, 512 * GIB, 29), Room("pmem1", 2, 512 * GIB, 29)]
    places = assign(shards(14), rooms).places
    assert sorted(places.values()).count("pmem0") == 7


def test_a_mount_of_twice_the_bandwidth_gets_twice_as_much() -> None:
    rooms = [Room("fast", 1, 2000 * GIB, 60), Room("slow", 2, 2000 * GIB, 30)]
    assert list(assign(shards(12), rooms).places.values()).count("fast") == 8


def test_one_unknown_bandwidth_makes_all_alike() -> None:
    rooms = [Room("fast", 1, 2000 * GIB, 60), Room("unknown", 2, 2000 * GIB)]
    assert list(assign(shards(12), rooms).places.values()).count("fast") == 6


def test_what_lies_somewhere_stays_there_and_needs_no_room() -> None:
    rooms = [Room("a", 1, 0), Room("b", 2, 100 * GIB)]
    first, second = shards(2)
    lying = Parcel(first.name, first.size_bytes, "a", 1, first.size_bytes)
    assert assign([lying, second], rooms).places == {first.name: "a", second.name: "b"}


def test_a_shard_that_may_be_renamed_prefers_nothing_but_needs_no_room_at_home() -> None:
    (only,) = shards(1)
    at_home = Parcel(only.name, only.size_bytes, None, 1, only.size_bytes)
    assert assign([at_home], [Room("home", 1, 0), Room("away", 2, 0)]).places == {only.name: "home"}


def test_two_folders_of_one_file_system_share_its_room() -> None:
    rooms = [Room("a", 1, 50 * GIB), Room("b", 1, 50 * GIB)]
    assert assign(shards(2), rooms).faults == (
        "no room for 1 more file, 45 GiB in all (free before: b 50 GiB); free some, or add a --to",
    )


def test_one_that_fits_nowhere_is_named_with_the_way_out() -> None:
    assert assign(shards(1), [Room("a", 1, 40 * GIB)]).faults == (
        "m-00001-of-00001.gguf: 45 GiB fit on no mount (the largest has 40 GiB free); free some, or let --resplit cut it",
    )


def test_what_was_begun_where_too_little_is_left_is_told() -> None:
    begun = Parcel("m.gguf", 45 * GIB, "a", 1, 5 * GIB)
    (line,) = assign([begun], [Room("a", 1, 30 * GIB), Room("b", 2, 900 * GIB)]).faults
    assert line == "a: 10 GiB too few are free for what was begun there; free some"


def test_large_ones_first_where_their_order_leaves_no_room() -> None:
    sizes = [1, 1, 4, 6]
    parcels = [Parcel(str(n), size) for n, size in enumerate(sizes)]
    rooms = [Room("a", 1, 6), Room("b", 2, 6)]
    assert not assign(parcels, rooms).faults


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 200), st.one_of(st.none(), st.floats(1, 100))),
        min_size=1,
        max_size=4,
    ),
)
def test_no_file_system_is_ever_overfull(sizes: list[int], places: list[tuple[int, int, float | None]]) -> None:
    free = {device: room for device, room, _ in places}
    rooms = [Room(str(n), device, free[device], speed) for n, (device, _, speed) in enumerate(places)]
    parcels = [Parcel(str(n), size) for n, size in enumerate(sizes)]
    assigned = assign(parcels, rooms)
    used = dict.fromkeys(free, 0)
    for parcel in parcels:
        if parcel.name in assigned.places:
            used[rooms[int(assigned.places[parcel.name])].device] += parcel.size_bytes
    assert all(used[device] <= free[device] for device in free)
    assert bool(assigned.faults) == (len(assigned.places) < len(parcels))
