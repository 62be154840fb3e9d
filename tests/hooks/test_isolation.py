"""One broken plugin is one record, and costs no other plugin anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from optaned.hooks.host import PluginHost
from optaned.hooks.records import PluginRecord, Status

HEAD = "from optaned.api import Driver, Options, hookimpl\nOPTANED_API = (1, 0)\n"

BROKEN = {
    "import": ("import no_such_library", Status.IMPORT_FAILED, "No module named 'no_such_library'"),
    "syntax": ("def (", Status.IMPORT_FAILED, "SyntaxError"),
    "exit": ("raise SystemExit(3)", Status.IMPORT_FAILED, "SystemExit: 3"),
    "misspelled": (
        HEAD + "@hookimpl\ndef optaned_teirs(): return []",
        Status.HOOK_MISMATCH,
        "no hook is named 'optaned_teirs' (did you mean 'optaned_tiers'?)",
    ),
    "argument": (HEAD + "@hookimpl\ndef optaned_event(evnt): pass", Status.HOOK_MISMATCH, "evnt"),
    "unmarked": (HEAD + "def optaned_tiers(): return []", Status.HOOK_MISMATCH, "optaned_tiers lacks its @hookimpl"),
    "wrapper": (
        HEAD + "@hookimpl(wrapper=True)\ndef optaned_event(event): return (yield)",
        Status.HOOK_MISMATCH,
        "optaned_event is a wrapper",
    ),
    "wrong-group": (HEAD + "@hookimpl\ndef optaned_sensors(): return []", Status.HOOK_MISMATCH, "'optaned.guard'"),
    "not-a-list": (
        HEAD + "@hookimpl\ndef optaned_tiers(): return {}",
        Status.HOOK_MISMATCH,
        "optaned_tiers returned dict, not a list of Driver",
    ),
    "not-a-driver": (HEAD + "@hookimpl\ndef optaned_tiers(): return ['x']", Status.HOOK_MISMATCH, "with str in it"),
    "no-options": (
        HEAD + "@hookimpl\ndef optaned_tiers(): return [Driver('x', dict, print)]",
        Status.HOOK_MISMATCH,
        "driver 'x': options must be a pydantic model",
    ),
    "twice": (
        HEAD + "@hookimpl\ndef optaned_tiers(): return [Driver('x', Options, print)] * 2",
        Status.HOOK_MISMATCH,
        "declares 'x' twice",
    ),
    "bad-name": (
        HEAD + "@hookimpl\ndef optaned_tiers(): return [Driver('My Tier', Options, print)]",
        Status.HOOK_MISMATCH,
        "not 'My Tier'",
    ),
    "raises": (
        HEAD + "@hookimpl\ndef optaned_tiers(): raise ValueError('two\\nlines')",
        Status.HOOK_FAILED,
        "optaned_tiers raised ValueError: two lines",
    ),
    "panic": (
        "class Panic(BaseException): pass\nraise Panic('in a native library')",
        Status.IMPORT_FAILED,
        "Panic: in a native library",
    ),
    "exits-in-a-hook": (
        HEAD + "@hookimpl\ndef optaned_tiers(): raise SystemExit(4)",
        Status.HOOK_FAILED,
        "optaned_tiers raised SystemExit: 4",
    ),
    "hides": (
        "OPTANED_API = (1, 0)\ndef __dir__(): return ['optaned_tiers']\ndef __getattr__(name): raise OSError(name)",
        Status.HOOK_MISMATCH,
        "looking at it raised OSError: optaned_tiers",
    ),
    "no-api": ("x = 1", Status.API_MISMATCH, "states no API version; write OPTANED_API = (1, 0)"),
    "newer": ("OPTANED_API = (1, 99)", Status.API_MISMATCH, "needs API 1.99, this optaned offers 1.0"),
    "next-major": ("OPTANED_API = (2, 0)", Status.API_MISMATCH, "needs API 2.0"),
    "odd-api": ("OPTANED_API = '1.0'", Status.API_MISMATCH, "OPTANED_API is '1.0', not a pair"),
}


def record_of(host: PluginHost, name: str) -> PluginRecord:
    return next(r for r in host.records if r.name == name)


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_plugin_is_one_record_and_the_others_work(install: Callable[..., Any], fault: str) -> None:
    source, status, reason = BROKEN[fault]
    install("good-a")
    install("broken", source)
    install("good-z")
    host = PluginHost.discover(wanted=["good-a", "broken", "good-z"])
    record = record_of(host, "broken")
    assert record.status is status
    assert reason in record.reason
    assert "\n" not in record.reason
    assert record.status.is_broken
    assert [d.name for d in host.drivers("tiers")] == ["good-a", "good-z"]
    assert record_of(host, "good-a").drivers == ("tiers/good-a",)
    assert record_of(host, "good-a").hooks == ("optaned_tiers",)


def test_an_exception_costs_one_hook_and_leaves_the_plugins_others(install: Callable[..., Any]) -> None:
    install(
        "half",
        HEAD
        + "@hookimpl\ndef optaned_tiers(): raise OSError\n"
        + "@hookimpl\ndef optaned_backends(): return (Driver('b', Options, print),)",
    )
    host = PluginHost.discover(wanted=["half"])
    assert record_of(host, "half").failures == 1
    assert host.driver("backends", "b").name == "b"


def test_records_are_sorted_and_say_what_was_left_out_and_why(install: Callable[..., Any]) -> None:
    for name in ("zeta", "alpha", "mid"):
        install(name, distribution=f"dist-{name}")
    host = PluginHost.discover(wanted=["zeta", "mid", "gone"], disabled=["mid"])
    ours = [r for r in host.records if r.name in ("zeta", "alpha", "mid", "gone")]
    assert [(r.name, r.status) for r in ours] == [
        ("alpha", Status.DISABLED),
        ("gone", Status.NOT_INSTALLED),
        ("mid", Status.DISABLED),
        ("zeta", Status.LOADED),
    ]
    assert ours[0].reason == "the configuration does not name it"
    assert ours[2].reason == "[plugins] disable names it"
    assert "no installed distribution has an entry point 'gone'" in ours[1].reason
    assert ours[3].distribution == "dist-zeta 1.0"


def test_a_plugin_that_is_not_wanted_is_not_imported(install: Callable[..., Any], tmp_path: Any) -> None:
    install("loud", f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    PluginHost.discover(wanted=["other"])
    assert not (tmp_path / "imported").exists()
    PluginHost.discover(wanted=["loud"])
    assert (tmp_path / "imported").exists()


def test_two_plugins_of_one_name_are_both_refused(install: Callable[..., Any]) -> None:
    install("same", distribution="dist-one")
    install("same", distribution="dist-two")
    records = [r for r in PluginHost.discover(wanted=["same"]).records if r.name == "same"]
    assert [r.status for r in records] == [Status.REFUSED, Status.REFUSED]
    assert all("dist-one 1.0 and dist-two 1.0" in r.reason for r in records)


def test_hosts_do_not_know_each_other(install: Callable[..., Any]) -> None:
    install("mine")
    PluginHost.discover(wanted=["mine"])
    assert PluginHost().records == ()
    assert PluginHost().drivers("tiers") == ()
