"""Heat forgets, remembers who was used last, and comes back from bytes only for the model that it belongs to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.errors import ConfigError
from optaned.placement.heat import PREFILL_WEIGHT, Heat
from optaned.placement.heat_bytes import decode_heat, encode_heat

COUNTS = st.lists(st.integers(0, 5), min_size=4, max_size=4)
STEPS = st.lists(st.tuples(COUNTS, st.integers(1, 40)), max_size=6)


def learned(steps: list[tuple[list[int], int]], heat: Heat | None = None) -> Heat:
    heat = heat or Heat.cold(4, half_life_tokens=10)
    for counts, tokens in steps:
        heat = heat.observe(counts, tokens)
    return heat


def test_frequency_is_uses_a_token() -> None:
    heat = Heat.cold(4).observe([[8, 0], [4, 4]], 8)
    np.testing.assert_allclose(heat.frequency, [1, 0, 0.5, 0.5])
    assert heat.tokens == 8


def test_a_use_weighs_half_after_the_half_life() -> None:
    heat = learned([([1, 0, 0, 0], 1), ([0, 0, 0, 0], 10)])
    assert heat.weight[0] == pytest.approx(0.5)
    assert heat.idle_tokens.tolist() == [10, np.inf, np.inf, np.inf]


def test_prefill_counts_for_less_and_says_nothing_of_recency() -> None:
    heat = Heat.cold(2, half_life_tokens=1e9).observe([0, 0], 0, [100, 300], 200)
    assert heat.weight.tolist() == pytest.approx([100 * PREFILL_WEIGHT, 300 * PREFILL_WEIGHT])
    np.testing.assert_allclose(heat.frequency, [0.5, 1.5])
    assert np.isinf(heat.idle_tokens).all()
    assert heat.tokens == 0


def test_what_was_is_never_written_to() -> None:
    before = learned([([1, 2, 0, 0], 3)])
    kept = before.weight.copy()
    before.observe([5, 5, 5, 5], 5, [1, 1, 1, 1], 1)
    np.testing.assert_array_equal(before.weight, kept)


@given(earlier=STEPS, later=STEPS)
def test_two_profiles_in_a_row_are_one_learned_in_a_row(
    earlier: list[tuple[list[int], int]], later: list[tuple[list[int], int]]
) -> None:
    joined, whole = learned(earlier).followed_by(learned(later)), learned(later, learned(earlier))
    np.testing.assert_allclose(joined.weight, whole.weight, atol=1e-9)
    np.testing.assert_allclose(joined.idle_tokens, whole.idle_tokens)
    assert joined.weighed_tokens == pytest.approx(whole.weighed_tokens)
    assert joined.squared_tokens == pytest.approx(whole.squared_tokens)
    assert joined.tokens == whole.tokens


def test_heat_of_other_experts_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match="heat of 4 experts and of 5"):
        Heat.cold(4).followed_by(Heat.cold(5))


@given(steps=STEPS)
def test_bytes_bring_back_exactly_what_was_learned(steps: list[tuple[list[int], int]]) -> None:
    heat = learned(steps)
    back = decode_heat(encode_heat(heat, "d" * 32), "d" * 32, 4)
    np.testing.assert_array_equal(back.weight, heat.weight)
    np.testing.assert_array_equal(back.last_used, heat.last_used)
    assert back.weighed_tokens == heat.weighed_tokens
    assert (back.tokens, back.half_life_tokens) == (heat.tokens, heat.half_life_tokens)


def test_another_models_heat_is_refused() -> None:
    data = encode_heat(learned([([1, 0, 0, 0], 1)]), "a" * 32)
    with pytest.raises(ConfigError, match=r"^belongs to the model with digest a{32} \(4 experts\), not to b{32}"):
        decode_heat(data, "b" * 32, 4)
    with pytest.raises(ConfigError, match=r"not to a{32} \(8 experts\)"):
        decode_heat(data, "a" * 32, 8)


def test_another_version_is_named() -> None:
    data = bytearray(encode_heat(Heat.cold(4), "d"))
    data[12] = 9
    with pytest.raises(ConfigError, match="version 9, this program reads version 1"):
        decode_heat(bytes(data), "d", 4)


@given(data=st.data())
def test_no_damage_is_believed(data: st.DataObject) -> None:
    whole = encode_heat(learned([([1, 2, 3, 0], 4)]), "d" * 32)
    place = data.draw(st.integers(0, len(whole) - 1))
    harm = data.draw(st.integers(1, 255))
    damaged = whole[:place] + bytes([whole[place] ^ harm]) + whole[place + 1 :]
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for bad in (damaged, cut, whole + b"x"):
        with pytest.raises(ConfigError):
            decode_heat(bad, "d" * 32, 4)
