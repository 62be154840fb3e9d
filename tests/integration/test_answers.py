"""A daemon answers: curl, parallel clients, cancelled ones, and an engine that dies at every token."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from optaned.testing.daemon import Daemon, eventually


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [{"role": "user", "content": text}], **more}


def content(reply: tuple[int, Any]) -> str:
    status, body = reply
    assert status == 200, body
    return str(body["choices"][0]["message"]["content"])


def events(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def text_of(lines: list[str]) -> str:
    chunks = [c for e in events(lines) for c in e.get("choices", [])]
    return "".join(chunk["delta"].get("content") or "" for chunk in chunks)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_reads_a_stream_from_the_socket(echo: Daemon) -> None:
    body = json.dumps(ask("über alles €", stream=True))
    command = ["curl", "-sS", "--no-buffer", "--unix-socket", str(echo.socket), "http://any/v1/chat/completions"]
    done = subprocess.run([*command, "-d", body], capture_output=True, text=True, timeout=30, check=True)
    assert text_of(done.stdout.splitlines()) == "über alles €"
    assert done.stdout.rstrip().endswith("data: [DONE]")


def test_twenty_parallel_clients_all_get_their_answers(echo: Daemon) -> None:
    with ThreadPoolExecutor(20) as pool:
        replies = pool.map(lambda n: echo.request("POST", "/v1/chat/completions", ask(f"client {n}")), range(20))
        assert [content(reply) for reply in replies] == [f"client {n}" for n in range(20)]


def test_leaving_a_stream_frees_its_slot(slow: Daemon) -> None:
    before = slow.get("/metrics")
    stream = slow.stream("/v1/chat/completions", ask("[[tokens 5000]]", stream=True))
    for line in stream:
        if '"content":"' in line:
            break
    stream.close()
    eventually(lambda: all(slot["state"] == "idle" for slot in slow.get("/slots")), within_s=5, what="idle slots")
    assert _completion_tokens(slow.get("/metrics")) - _completion_tokens(before) < 100


def _completion_tokens(metrics: str) -> float:
    return next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith("optaned_completion_tokens"))


def test_a_client_that_leaves_during_prefill_frees_its_slot(slow: Daemon) -> None:
    stream = slow.stream("/v1/chat/completions", ask("long " * 1500, stream=True))
    next(stream)
    eventually(lambda: any(slot["state"] == "prefill" for slot in slow.get("/slots")), what="a prefill")
    stream.close()
    eventually(lambda: all(slot["state"] == "idle" for slot in slow.get("/slots")), within_s=5, what="idle slots")


def test_a_quiet_stream_is_kept_alive_by_comments(slow: Daemon) -> None:
    lines = list(slow.stream("/v1/chat/completions", ask("x" * 500, stream=True, max_tokens=2)))
    first_data = next(n for n, line in enumerate(lines) if '"content":"' in line)
    assert any(line.startswith(":") for line in lines[:first_data])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV])
def test_an_engine_killed_from_outside_ends_the_stream_with_a_typed_error(slow: Daemon, number: int) -> None:
    eventually(slow.is_ready)
    pid = slow.get("/ready")["engine_pid"]
    lines = []
    for line in slow.stream("/v1/chat/completions", ask("[[tokens 4000]]", stream=True)):
        lines.append(line)
        if '"content":"' in line and pid is not None:
            os.kill(pid, number)
            pid = None
    assert events(lines)[-1]["error"]["code"] == "engine_died"
    assert "[DONE]" not in "".join(lines)
    eventually(slow.is_ready, what="a new engine")
    assert content(slow.request("POST", "/v1/chat/completions", ask("alive"))) == "alive"


def test_the_engine_killed_at_every_token_leaves_server_and_socket_alive(echo: Daemon) -> None:
    answer = "sechs ÄÖÜ"
    for at in range(len(answer.encode()) + 1):
        eventually(echo.is_ready, what="the engine is back")
        lines = list(echo.stream("/v1/chat/completions", ask(f"{answer}[[crash 9 at {at}]]", stream=True)))
        assert answer.startswith(text_of(lines).rstrip("�")), at
        if "[DONE]" not in "".join(lines):
            assert events(lines)[-1]["error"]["code"] == "engine_died"
        assert echo.get("/health")["status"] == "ok"
    eventually(echo.is_ready)
    assert content(echo.request("POST", "/v1/chat/completions", ask("still here"))) == "still here"


def test_control_routes_answer_while_the_engine_stands_still(slow: Daemon) -> None:
    """No bound on time here (bench/latency.py has it): they answer at all, from a stalled engine."""
    with ThreadPoolExecutor(1) as pool:
        stalled = pool.submit(slow.request, "POST", "/v1/chat/completions", ask("a[[stall 3 at 0]]"))
        eventually(lambda: any(slot["state"] != "idle" for slot in slow.get("/slots")), what="a busy slot")
        for path in ("/health", "/ready", "/metrics", "/slots", "/props", "/v1/models"):
            assert slow.request("GET", path, timeout_s=2)[0] == 200, path
        assert slow.request("POST", "/tokenize", {"content": "abc"}, timeout_s=2)[0] == 200
        assert content(stalled.result()) == "a"


def test_another_model_is_loaded_on_demand_and_requests_name_the_loaded_one(echo: Daemon) -> None:
    status, body = echo.request("POST", "/v1/chat/completions", {**ask("x"), "model": "other"})
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "echo" in body["error"]["message"]
    assert echo.request("POST", "/load", {"model": "other"})[0] in (200, 202)
    eventually(lambda: echo.is_ready() and echo.get("/ready")["model"] == "other", what="other is loaded")
    assert content(echo.request("POST", "/v1/chat/completions", {**ask("x"), "model": "other"})) == "x"
    assert echo.request("POST", "/load", {"model": "echo"})[0] in (200, 202)
    eventually(lambda: echo.is_ready() and echo.get("/ready")["model"] == "echo", what="echo is loaded")


def test_every_chunk_of_a_stream_agrees_on_its_name(echo: Daemon) -> None:
    chunks = events(list(echo.stream("/v1/chat/completions", ask("abc", stream=True))))
    assert all((a["id"], a["created"], a["model"]) == (b["id"], b["created"], b["model"]) for a, b in pairwise(chunks))
