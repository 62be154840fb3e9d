"""The verbs that read or change the daemon's state, for people and with --json."""

from __future__ import annotations

import json
import os
import threading

import pytest


def test_status_shows_everything_at_a_glance(ctl, daemon, view) -> None:
    thermal = {"level": "hot", "duty": 0.5, "reason": "dimm 2 at 73 °C", "paused": False}
    daemon.ready = view(thermal=thermal, waiting=3)
    daemon.slots.append({**daemon.slots[0], "slot": 1, "state": "decode"})
    found = ctl("status")
    assert found.code == 0
    assert found.out.splitlines() == [
        "model   ready tiny",
        "heat    HOT, duty 50% (dimm 2 at 73 °C)",
        "slots   1 of 2 busy, 3 waiting",
        "tokens  40 read (0 reused), 300 written, 75.0 tokens/s",
        f"daemon  pid {os.getpid()} on {daemon.path}",
    ]


def test_status_says_why_experts_move_or_do_not(ctl, daemon, view) -> None:
    said = "expert moves are off: the router chooses all experts almost alike"
    daemon.tiers = {"policy": "heat", "moving": said, "skew": 0.01, "tiers": [{"name": "dram0"}]}
    assert ctl("status").out.splitlines()[4] == f"tiers   heat: {said}"
    assert json.loads(ctl("status", "--json").out)["placement"] == {"policy": "heat", "moving": said, "skew": 0.01}


def test_status_as_json_keeps_the_daemons_words(ctl, daemon) -> None:
    found = json.loads(ctl("status", "--json").out)
    assert found["pid"] == os.getpid()
    assert found["socket"] == str(daemon.path)
    assert (found["state"], found["model"], found["thermal"]["level"]) == ("ready", "tiny", "cool")
    assert found["slots"] == {"total": 1, "busy": 0}
    assert found["tokens"] == {"prompt": 40, "cached": 0, "completion": 300, "per_s": 75.0}


def test_a_guard_that_is_silent_is_shown_as_such(ctl, daemon, view) -> None:
    daemon.ready = view(thermal={"level": None, "duty": 0.0, "reason": "the guard is silent", "paused": True})
    assert "heat    unknown, duty 0%, paused (the guard is silent)" in ctl("status").out


def test_waiting_ends_when_the_model_is_ready(on_terminal, daemon, view) -> None:
    daemon.ready = view("loading", fraction=0.43)
    session = on_terminal("status", "--wait")
    session.expect("loading tiny, 43%")
    daemon.ready = view("ready")
    session.expect("model   ready tiny")
    assert session.finish() == 0


def test_waiting_ends_when_the_model_has_failed(ctl, daemon, view) -> None:
    daemon.ready = view("failed", detail="tiny.gguf is truncated")
    found = ctl("status", "--wait")
    assert (found.code, found.err) == (1, "optanectl: failed tiny (tiny.gguf is truncated)\n")


def test_waiting_gives_up_after_its_timeout(ctl, daemon, view) -> None:
    daemon.ready = view("loading", fraction=0.1)
    found = ctl("status", "--wait", "--timeout", "0.1")
    assert found.code == 75
    assert "not ready after 0.1 s: loading tiny, 10%" in found.err


def test_waiting_gives_a_starting_daemon_a_moment(on_terminal, daemon) -> None:
    hidden = daemon.path.with_name("hidden")
    daemon.path.rename(hidden)
    session = on_terminal("status", "--wait")
    session.expect("waiting for the daemon")
    hidden.rename(daemon.path)
    session.expect("ready tiny")
    assert session.finish() == 0


def test_models_are_listed_with_their_state(ctl) -> None:
    assert ctl("models").out.splitlines() == ["NAME  STATE     CONTEXT", "tiny  ready     4096", "huge  unloaded  -"]
    assert [model["id"] for model in json.loads(ctl("models", "--json").out)["data"]] == ["tiny", "huge"]


def test_slots_are_listed(ctl, daemon) -> None:
    daemon.slots[0] |= {"state": "prefill", "prefilled_tokens": 5, "prompt_tokens": 9}
    assert ctl("slots").out.splitlines()[1].split() == ["0", "prefill", "5/9", "0", "0"]
    assert json.loads(ctl("slots", "--json").out) == daemon.slots


def test_tokens_are_shown_with_their_text(ctl, daemon) -> None:
    assert ctl("tokenize", "Hi").out.splitlines() == ["      7  'Hi'", "      8  b'\\xf0\\x9f'"]
    assert json.loads(ctl("tokenize", "Hi", "--json").out)["tokens"][0] == {"id": 7, "piece": "Hi"}


def test_load_can_wait_and_unload_does_not(ctl, daemon, view) -> None:
    def begin() -> None:
        daemon.ready = view("loading")
        threading.Timer(0.3, lambda: setattr(daemon, "ready", view("ready"))).start()

    daemon.loads = begin
    assert ctl("load", "tiny", "--wait").out == "tiny is ready\n"
    daemon.loads = lambda: None
    assert ctl("load", "tiny").out.startswith("tiny is loading")
    assert ctl("unload").out == "unloaded\n"
    assert [(path, body) for method, path, body in daemon.requests if method == "POST"] == [
        ("/load", {"model": "tiny"}), ("/load", {"model": "tiny"}), ("/unload", {}),
    ]  # fmt: skip


@pytest.mark.parametrize("verb", [("load", "tiny"), ("unload",)])
def test_control_needs_the_right(ctl, daemon, verb: tuple[str, ...]) -> None:
    daemon.refusal = (403, {"error": {"message": "only members of optaned-admin may do this"}})
    found = ctl(*verb)
    assert (found.code, found.err) == (77, "optanectl: only members of optaned-admin may do this\n")
