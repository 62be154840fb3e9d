"""A driver is found by kind and name, or the one line says why not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from optaned.api import Driver, Options, hookimpl
from optaned.errors import PluginError
from optaned.hooks.host import PluginHost


def plugin(*names: str, api: tuple[int, int] = (1, 0)) -> SimpleNamespace:
    @hookimpl
    def optaned_tiers() -> list[Driver]:
        return [Driver(name, Options, print) for name in names]

    return SimpleNamespace(OPTANED_API=api, optaned_tiers=optaned_tiers)


def host_of(**plugins: SimpleNamespace) -> PluginHost:
    host = PluginHost()
    for name, one in plugins.items():
        host.register(one, name, f"dist-{name} 1.0")
    return host


def message(host: PluginHost, name: str) -> str:
    with pytest.raises(PluginError) as caught:
        host.driver("tiers", name)
    assert len(caught.value.lines) == 1
    assert caught.value.exit_code == 78
    return caught.value.lines[0]


def test_the_driver_of_the_name_is_returned() -> None:
    assert host_of(a=plugin("slow", "fast")).driver("tiers", "fast").name == "fast"


def test_a_mistyped_name_gets_the_likely_one_and_all_known() -> None:
    text = message(host_of(a=plugin("memory", "file")), "memroy")
    assert text == "no tier driver is named 'memroy' (did you mean 'memory'?); known: file, memory"


def test_two_plugins_that_offer_one_driver_are_an_error_that_lists_both() -> None:
    host = host_of(a=plugin("slow"), b=plugin("slow", "fast"))
    text = "tier driver 'slow' is offered by a (dist-a 1.0) and b (dist-b 1.0); name one of them in [plugins] disable"
    assert message(host, "slow") == text
    assert host.collisions() == (text,)
    assert host.driver("tiers", "fast")


def test_the_reason_of_the_broken_plugin_is_told() -> None:
    host = host_of(shelf=plugin("shelf", api=(9, 0)), other=plugin("x"))
    assert message(host, "shelf") == (
        "tier driver 'shelf': plugin shelf (dist-shelf 1.0): api mismatch: needs API 9.0, this optaned offers 1.0"
    )
    assert "not loaded: shelf (dist-shelf 1.0): api mismatch" in message(host, "attic")


def test_one_plugin_under_two_names_is_taken_once() -> None:
    host, one = PluginHost(), plugin("x")
    host.register(one, "first")
    assert host.register(one, "second").reason == "the same plugin is loaded as 'first'"
    assert host.driver("tiers", "x")
