"""Every effective value with its origin; secrets never."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.config.masking import masked
from optaned.config.resolve import ResolvedConfig
from optaned.config.toml import toml_value

Resolve = Callable[..., ResolvedConfig]
MODEL = '[models.m]\nfiles = ["m.gguf"]\n'


def test_each_value_says_where_it_comes_from(resolve_text: Resolve) -> None:
    resolved = resolve_text(MODEL + '[tiers.d]\ndriver = "memory"\nreserve = "2GiB"\n', OPTANED__SERVER__QUEUE="5")
    shown = {s.key: (s.text, s.origin) for s in resolved.settings}
    assert shown["models.m.files"] == ('["m.gguf"]', "file")
    assert shown["tiers.d.reserve"] == ('"2GiB"', "file")
    assert shown["tiers.d.numa_node"] == (None, "default")
    assert shown["server.queue"] == ("5", "environment OPTANED__SERVER__QUEUE")
    assert shown["server.max_body"] == ('"16MiB"', "default")
    assert shown["engine.llamacpp.gpu_layers"] == ("0", "default")
    assert resolved.origins["thermal.tick_s"] == "default"


def test_secrets_are_masked_by_name_by_type_and_in_addresses(resolve_text: Resolve) -> None:
    text = '[sensors.s]\ndriver = "hwmon"\napi_key = "k1"\npin = "k2"\nchip = "http://me:k3@host/"\n'
    resolved = resolve_text(MODEL + text)
    shown = {s.key: s.text for s in resolved.settings}
    assert shown["sensors.s.api_key"] == '"********"'
    assert shown["sensors.s.pin"] == '"********"'
    assert shown["sensors.s.chip"] == '"http://********@host/"'
    assert not any(secret in str(resolved.settings) for secret in ("k1", "k2", "k3"))


def test_a_faulty_secret_is_not_shown_either(complaints: Callable[..., list[str]]) -> None:
    text = MODEL + '[sensors.s]\ndriver = "hwmon"\napi_key = ["k1"]\npin = 1234\n'
    assert complaints(text) == [
        "sensors.s.api_key: must be text in quotes, not ********",
        "sensors.s.pin: must be text in quotes, not ********",
    ]


@pytest.mark.parametrize("key", ["Authorization", "X-Api-Key", "hub_token", "cookies", "PASSWD"])
def test_secrets_in_tables_of_a_driver_are_masked_by_name(key: str) -> None:
    assert masked("headers", {key: "k1", "Accept": "text"}) == {key: "********", "Accept": "text"}


plain = (
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
)
nested = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=3)
    ),
)


@given(nested)
def test_any_value_reads_back_as_it_was(value: object) -> None:
    text = toml_value(value)
    assert isinstance(text, str)
    assert tomllib.loads(f"v = {text}")["v"] == value
