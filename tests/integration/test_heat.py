"""Silence and heat stop the engine, whoever of the three is dead; only a living guard and server let it go on."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from optaned.testing.daemon import Daemon, daemon, eventually

Config = Callable[..., str]


class Reader(threading.Thread):
    """Reads one stream to its end, so that a test can look at what came so far."""

    def __init__(self, running: Daemon, text: str, **more: Any) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._stream = running.stream(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "stream": True, **more}
        )
        self.start()

    def run(self) -> None:
        for line in self._stream:
            self.lines.append(line)

    @property
    def text(self) -> str:
        found = [json.loads(line[6:]) for line in list(self.lines) if line.startswith("data: {")]
        return "".join(c["delta"].get("content") or "" for event in found for c in event.get("choices", []))

    @property
    def comments(self) -> list[str]:
        return [line for line in list(self.lines) if line.startswith(": ")]


@pytest.fixture
def hot(tmp_path: Path, echo_config: Config) -> Iterator[Daemon]:
    config = echo_config(tmp_path, token_delay_s=0.01, prefill_delay_s_per_token=0.002)
    with daemon(tmp_path, config) as running:
        yield running
        assert running.stop() == 0


def engine_of(running: Daemon) -> psutil.Process:
    return psutil.Process(running.get("/ready")["engine_pid"])


def guard_of(running: Daemon) -> psutil.Process:
    def find() -> psutil.Process | None:
        alive = [c for c in psutil.Process(running.process.pid).children() if c.status() != psutil.STATUS_ZOMBIE]
        return next((child for child in alive if "guard" in child.cmdline()), None)

    found: psutil.Process = eventually(find, what="a guard")
    return found


def assert_stands_still(engine: psutil.Process) -> None:
    eventually(lambda: engine.status() == psutil.STATUS_STOPPED, what="the engine stands still")
    before = engine.cpu_times()
    threading.Event().wait(0.3)
    assert engine.cpu_times() == before


def assert_finishes(reader: Reader, answer: str) -> None:
    reader.join(30)
    assert reader.text == answer
    assert reader.lines[-2:] == ["data: [DONE]", ""]


ANSWER = ("abcdefghijklmnopqrstuvwxyz" * 20)[:400]


def test_heat_pauses_a_stream_says_why_and_goes_on_with_the_same_tokens(hot: Daemon) -> None:
    engine, reader = engine_of(hot), Reader(hot, "[[tokens 400]]")
    eventually(lambda: len(reader.text) > 20, what="text")
    (hot.folder / "celsius").write_text("77\n")
    assert_stands_still(engine)
    eventually(lambda: any("77" in comment and "dimm2" in comment for comment in reader.comments), what="a reason")
    ready = hot.get("/ready")
    assert ready["thermal"]["level"] == "critical"
    assert ready["thermal"]["paused"] is True
    (hot.folder / "celsius").write_text("40\n")
    assert_finishes(reader, ANSWER)
    assert engine.pid == hot.get("/ready")["engine_pid"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_guard_that_is_gone_stops_generation_and_the_next_one_resumes_it(hot: Daemon, number: int) -> None:
    engine, guard = engine_of(hot), guard_of(hot)
    reader = Reader(hot, "[[tokens 400]]")
    eventually(lambda: len(reader.text) > 20, what="text")
    guard.send_signal(number)
    assert_stands_still(engine)
    eventually(lambda: guard_of(hot).pid != guard.pid, what="another guard")
    assert_finishes(reader, ANSWER)
    assert engine.pid == hot.get("/ready")["engine_pid"]


def test_a_guard_killed_in_a_long_prefill_stops_it_and_the_answer_comes_all_the_same(hot: Daemon) -> None:
    engine, reader = engine_of(hot), Reader(hot, "long " * 700 + "[[say done]]")
    eventually(lambda: any(slot["state"] == "prefill" for slot in hot.get("/slots")), what="a prefill")
    guard_of(hot).kill()
    assert_stands_still(engine)
    assert_finishes(reader, "done")


def test_a_stopped_server_does_not_keep_heat_from_stopping_the_engine(hot: Daemon) -> None:
    engine, reader = engine_of(hot), Reader(hot, "[[tokens 400]]")
    eventually(lambda: len(reader.text) > 20, what="text")
    hot.signal(signal.SIGSTOP)
    (hot.folder / "celsius").write_text("77\n")
    assert_stands_still(engine)
    (hot.folder / "celsius").write_text("40\n")
    assert_stands_still(engine)  # nobody but the server resumes
    hot.signal(signal.SIGCONT)
    assert_finishes(reader, ANSWER)


def test_a_trip_kills_the_engine_and_parks_the_server_under_the_same_pid(hot: Daemon) -> None:
    engine, reader = engine_of(hot), Reader(hot, "[[tokens 4000]]")
    eventually(lambda: len(reader.text) > 20, what="text")
    (hot.folder / "celsius").write_text("81\n")
    reader.join(30)
    assert (
        json.loads([line[6:] for line in reader.lines if line.startswith("data: {")][-1])["error"]["code"]
        == "thermal_trip"
    )
    eventually(lambda: not engine.is_running(), what="the engine is dead")
    status, ready = hot.request("GET", "/ready")
    assert status == 503
    assert ready["thermal"]["level"] == "trip"
    status, body = hot.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert (status, body["error"]["code"]) == (503, "thermal_trip")
    assert hot.process.poll() is None
