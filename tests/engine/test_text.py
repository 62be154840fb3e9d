"""Text from bytes that are cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.engine.text import TextStream, first_stop, longest_beginning

# Few characters, so that stops and texts meet; with every length that UTF-8 has.
characters = st.text(st.sampled_from("abé€😀"), max_size=24)
stops = st.lists(st.text(st.sampled_from("abé€"), min_size=1, max_size=4), max_size=4)
broken = st.binary(max_size=24)


def stream(pieces: list[bytes], stops: tuple[str, ...] = ()) -> tuple[list[str], str | None]:
    text = TextStream(stops)
    out = [text.feed(piece) for piece in pieces]
    out.append(text.finish())
    return out, text.stopped


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(st.one_of(characters.map(str.encode), broken), st.lists(st.integers(0, 99), max_size=30), stops)
def test_any_cut_gives_the_same_text_and_the_same_stop(data: bytes, places: list[int], stops: list[str]) -> None:
    by_byte, stop_by_byte = stream([bytes([byte]) for byte in data], tuple(stops))
    pieces, stop = stream(cut(data, places), tuple(stops))
    whole, stop_whole = stream([data], tuple(stops))
    assert "".join(pieces) == "".join(by_byte) == "".join(whole)
    assert stop == stop_by_byte == stop_whole


@given(st.one_of(characters.map(str.encode), broken), st.lists(st.integers(0, 99), max_size=30))
def test_without_stops_the_text_is_what_the_bytes_say(data: bytes, places: list[int]) -> None:
    pieces, stop = stream(cut(data, places))
    assert ("".join(pieces), stop) == (data.decode(errors="replace"), None)


@given(characters, stops)
def test_a_stop_string_is_never_in_the_text(text: str, stops: list[str]) -> None:
    pieces, stop = stream([bytes([byte]) for byte in text.encode()], tuple(stops))
    said = "".join(pieces)
    assert not any(each in said for each in stops)
    assert text.startswith(said)
    assert (stop is None) == (said == text)


@given(characters, stops)
def test_what_is_sent_never_has_to_be_taken_back(text: str, stops: list[str]) -> None:
    pieces, stop = stream([bytes([byte]) for byte in text.encode()], tuple(stops))
    before_end = "".join(pieces[:-1])
    assert "".join(pieces).startswith(before_end)
    if stop is not None:
        assert pieces[-1] == ""


def test_a_character_is_held_back_until_it_is_whole() -> None:
    assert stream([b"\xe2", b"\x82", b"\xac"])[0] == ["", "", "€", ""]


def test_a_character_that_never_becomes_whole_is_replaced_at_the_end() -> None:
    assert stream([b"a", b"\xe2\x82"])[0] == ["a", "", "\ufffd"]


def test_only_what_may_become_a_stop_is_held_back() -> None:
    pieces, stop = stream([b"one ", b"t", b"o ", b"tw", b"o", b" three"], ("two",))
    assert (pieces, stop) == (["one ", "", "to ", "", "", "", ""], "two")


@pytest.mark.parametrize(
    "text, stops, found",
    [
        ("xabc", ("abc",), (1, "abc")),
        ("abc", ("abc", "bc"), (0, "abc")),
        ("abcd", ("abcd", "bc"), (1, "bc")),
        ("abab", ("b", "ab"), (0, "ab")),
        ("none", ("abc",), None),
    ],
)
def test_the_stop_that_is_complete_first_wins(text: str, stops: tuple[str, ...], found: object) -> None:
    assert first_stop(text, stops) == found


def test_the_longest_beginning_counts() -> None:
    assert longest_beginning("xaab", ("aabb", "ba")) == 3
    assert longest_beginning("xyz", ("ab",)) == 0


def test_an_empty_stop_string_stops_nothing() -> None:
    assert stream([b"abc"], ("",)) == (["abc", ""], None)
