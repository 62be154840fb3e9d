"""SIGTERM with open streams, in a prefill, and while paused: final events, exit 0, nobody left behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from optaned.testing.daemon import Daemon, daemon, eventually

Config = Callable[..., str]


def ask(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "stream": True}


def family(running: Daemon) -> list[psutil.Process]:
    return psutil.Process(running.process.pid).children(recursive=True)


def last_event(lines: list[str]) -> dict[str, Any]:
    last: dict[str, Any] = json.loads([line[6:] for line in lines if line.startswith("data: {")][-1])
    return last


def assert_ended_well(running: Daemon, children: list[psutil.Process]) -> None:
    assert running.process.wait(5) == 0, running.log
    assert not running.socket.exists()
    eventually(lambda: not any(child.is_running() for child in children), within_s=5, what="no child is left")
    assert "Traceback" not in running.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_a_stream_sends_a_final_event(tmp_path: Path, echo_config: Config, number: int) -> None:
    with daemon(tmp_path, echo_config(tmp_path, token_delay_s=0.02)) as running:
        children, lines = family(running), []
        for line in running.stream("/v1/chat/completions", ask("[[tokens 5000]]")):
            lines.append(line)
            if '"content":"' in line:
                running.signal(number)
        assert last_event(lines)["error"]["code"] == "shutting_down"
        assert_ended_well(running, children)


def test_a_stop_in_a_prefill_sends_a_final_event(tmp_path: Path, echo_config: Config) -> None:
    with daemon(tmp_path, echo_config(tmp_path, prefill_delay_s_per_token=0.01)) as running:
        children, lines = family(running), []
        stream = running.stream("/v1/chat/completions", ask("long " * 1500))
        lines.append(next(stream))
        eventually(lambda: any(slot["state"] == "prefill" for slot in running.get("/slots")), what="a prefill")
        running.signal(signal.SIGTERM)
        lines += stream
        assert last_event(lines)["error"]["code"] == "shutting_down"
        assert_ended_well(running, children)


def test_a_stop_while_paused_kills_the_engine_without_resuming_it(tmp_path: Path, echo_config: Config) -> None:
    with daemon(tmp_path, echo_config(tmp_path, token_delay_s=0.02)) as running:
        children, lines = family(running), []
        stream = running.stream("/v1/chat/completions", ask("[[tokens 5000]]"))
        for line in stream:
            lines.append(line)
            if '"content":"' in line:
                break
        (tmp_path / "celsius").write_text("77\n")
        engine = psutil.Process(running.get("/ready")["engine_pid"])
        eventually(lambda: engine.status() == psutil.STATUS_STOPPED, what="the engine stands still")
        running.signal(signal.SIGTERM)
        lines += stream
        assert last_event(lines)["error"]["code"] == "shutting_down"
        assert_ended_well(running, children)


def test_a_stop_while_loading_ends_at_once(tmp_path: Path, echo_config: Config) -> None:
    config = echo_config(tmp_path).replace("[engine.echo]", "[engine.echo]\nload_delay_s = 30")
    with daemon(tmp_path, config, ready=False) as running:
        eventually(lambda: running.socket.exists() and running.get("/ready")["state"] == "loading", what="it loads")
        children = family(running)
        running.signal(signal.SIGTERM)
        assert_ended_well(running, children)


def test_a_killed_server_leaves_no_child_and_the_next_one_takes_its_place(tmp_path: Path, echo_config: Config) -> None:
    with daemon(tmp_path, echo_config(tmp_path)) as running:
        children = family(running)
        assert len(children) == 3, "engine, tokenizer and guard"
        running.signal(signal.SIGKILL)
        running.process.wait(5)
        eventually(lambda: not any(child.is_running() for child in children), within_s=5, what="no child is left")
        assert running.socket.exists()
    with daemon(tmp_path, echo_config(tmp_path)) as running:
        assert running.get("/health")["status"] == "ok"


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(tmp_path: Path, echo_config: Config) -> None:
    with (
        daemon(tmp_path, echo_config(tmp_path)) as first,
        daemon(tmp_path, echo_config(tmp_path), ready=False) as second,
    ):
        assert second.process.wait(20) == 75
        assert f"process {first.process.pid}" in first.log
        assert first.get("/health")["status"] == "ok"


def test_a_broken_configuration_ends_with_78_and_every_fault(tmp_path: Path, echo_config: Config) -> None:
    config = echo_config(tmp_path).replace("slots =", "slotz =").replace("tick_s = 0.1", "tick_s = 83000")
    with daemon(tmp_path, config, ready=False) as running:
        assert running.process.wait(20) == 78
        assert "engine.slotz" in running.log
        assert "did you mean 'slots'" in running.log
        assert "thermal.tick_s" in running.log


def test_the_exit_of_a_stopped_daemon_does_not_depend_on_a_terminal(tmp_path: Path, echo_config: Config) -> None:
    with daemon(tmp_path, echo_config(tmp_path)) as running:
        os.kill(running.process.pid, signal.SIGTERM)
        assert running.process.wait(5) == 0
