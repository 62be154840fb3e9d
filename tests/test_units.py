"""Sizes, temperatures and durations as people write them, and what they are told when they slip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.units import format_bytes, parse_bytes, parse_celsius, parse_seconds


@pytest.mark.parametrize(
    ("written", "size_bytes"), [("24GiB", 24 << 30), ("1.5 MiB", 3 << 19), ("512 B", 512), (65536, 65536), (0, 0)]
)
def test_sizes_are_binary(written: object, size_bytes: int) -> None:
    assert parse_bytes(written) == size_bytes


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("64GB", 'did you mean "64GiB"'),
        ("64g", 'did you mean "64GiB"'),
        ("64", 'write it like "64GiB"'),
        (64, 'write the unit, like "64GiB"'),
        ("64 bananas", "unknown unit 'bananas'"),
        ("plenty", 'a size is written like "64GiB"'),
        (-1, "cannot be negative"),
        (True, "a size is written like"),
    ],
)
def test_a_slip_in_a_size_is_told_with_the_right_spelling(written: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_bytes(written)


@given(st.integers(0, 1 << 50))
def test_a_formatted_size_reads_back_within_its_four_digits(size_bytes: int) -> None:
    assert parse_bytes(format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=1e-3, abs=1)


def test_a_temperature_in_thousandths_is_told_as_such() -> None:
    assert parse_celsius(83) == 83.0
    with pytest.raises(ValueError, match="did you mean 83"):
        parse_celsius(83000)
    with pytest.raises(ValueError, match="not plausible"):
        parse_celsius(400)


@pytest.mark.parametrize(("written", "seconds"), [(2, 2.0), ("250ms", 0.25), ("5min", 300.0), ("3d", 259200.0)])
def test_durations(written: object, seconds: float) -> None:
    assert parse_seconds(written) == seconds


@pytest.mark.parametrize("written", ["soon", -1, True, "5m"])
def test_a_slip_in_a_duration_is_told(written: object) -> None:
    with pytest.raises(ValueError, match='text like "5min"'):
        parse_seconds(written)
