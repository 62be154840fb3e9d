"""How streams live and end: quiet times, leaving clients, dying engines, stopping servers."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from optaned.domain.thermal import Level
from optaned.server.ports import Failure
from optaned.server.settings import ServerSettings
from optaned.testing.daemon import eventually
from optaned.testing.serving import Served, chat_body, events_of, serving

CHAT = "/v1/chat/completions"


def post(path: str, body: dict[str, Any]) -> bytes:
    payload = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: any.example:1\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def read_until(sock: socket.socket, mark: bytes) -> bytes:
    seen = b""
    while mark not in seen:
        more = sock.recv(4096)
        assert more, f"closed before {mark!r}: {seen!r}"
        seen += more
    return seen


def test_headers_come_before_the_engine_starts_and_pings_while_it_is_quiet(tmp_path: Path) -> None:
    with serving(tmp_path, settings=ServerSettings(ping_s=0.05)) as served, served.connect() as sock:
        served.call(served.engine.gate.clear)
        sock.sendall(post(CHAT, chat_body(stream=True)))
        head = read_until(sock, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"text/event-stream" in head
        assert served.engine.produced == 0
        read_until(sock, b": ping prefill 10/21\n\n")
        served.pause.view = replace(served.pause.view, level=Level.CRITICAL, paused=True, reason="dimm 2 at 79 °C")
        read_until(sock, ": paused, dimm 2 at 79 °C\n\n".encode())
        served.call(served.engine.gate.set)
        assert b'"stop"' in read_until(sock, b"[DONE]\n\n")


def test_a_talking_stream_gets_no_pings(tmp_path: Path) -> None:
    with serving(tmp_path, settings=ServerSettings(ping_s=0.3)) as served, served.connect() as sock:
        served.engine.pace_s = 0.01
        served.engine.answer = lambda _: ["x"] * 100
        sock.sendall(post(CHAT, chat_body(stream=True)))
        assert b": ping" not in read_until(sock, b"[DONE]\n\n")


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_leaves_ends_its_answer(served: Served, is_stream: bool, n: int) -> None:
    served.engine.answer = lambda _: ["x"] * 100_000
    served.engine.pace_s = 0.005
    body = chat_body(stream=is_stream, n=n)
    body["max_tokens"] = 400
    with served.connect() as sock:
        sock.sendall(post(CHAT, body))
        eventually(lambda: served.engine.produced > 5, what="tokens come")
    eventually(lambda: served.engine.open == 0, within_s=1.0, what="the slot is free")
    assert len(served.engine.cancelled) == n
    produced = served.engine.produced
    assert produced < 400 * n
    served.call(asyncio.sleep, 0.05)
    assert served.engine.produced == produced


def test_a_client_that_leaves_in_the_prefill_ends_its_answer(served: Served) -> None:
    served.call(served.engine.gate.clear)
    with served.connect() as sock:
        sock.sendall(post(CHAT, chat_body(stream=True)))
        eventually(lambda: served.engine.open == 1)
    eventually(lambda: served.engine.open == 0, within_s=1.0)


def test_a_client_that_leaves_is_one_line_in_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    served.call(served.engine.gate.clear)
    with served.connect() as sock:
        sock.sendall(post(CHAT, chat_body()))
        eventually(lambda: served.engine.open == 1)
    eventually(lambda: any(" 499 " in r.message for r in caplog.records))
    assert not [r for r in caplog.records if r.levelname == "ERROR"]


def test_an_engine_that_dies_ends_the_stream_with_an_error_event(client: httpx2.Client, served: Served) -> None:
    served.engine.dies_after = 2
    text = client.post(CHAT, json=chat_body(stream=True)).text
    *chunks, last = events_of(text)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "Hello, "
    assert last["error"]["code"] == "engine_died"
    assert "[DONE]" not in text


def test_an_engine_that_dies_is_a_500_that_may_be_tried_again(client: httpx2.Client, served: Served) -> None:
    served.engine.dies_after = 2
    for n in (1, 2):
        response = client.post(CHAT, json=chat_body(n=n))
        assert response.status_code == 500
        assert response.headers["x-should-retry"] == "true"
        assert response.json()["error"]["code"] == "engine_died"
    assert served.engine.open == 0


@pytest.mark.parametrize(
    ("code", "status", "retry"),
    [
        ("queue_full", 429, "true"),
        ("model_loading", 503, "true"),
        ("model_not_loaded", 503, "true"),
        ("thermal_trip", 503, "true"),
        ("shutting_down", 503, "true"),
        ("model_failed", 503, "false"),
    ],
)
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_refused_request_has_its_status(
    client: httpx2.Client, served: Served, code: str, status: int, retry: str, is_stream: bool
) -> None:
    served.engine.refuses = Failure(code, "no", retry_after_s=100_000)
    response = client.post(CHAT, json=chat_body(stream=is_stream, n=2))
    assert response.status_code == status
    assert response.json()["error"] | {"message": ""} == response.json()["error"] | {"message": "", "code": code}
    assert response.headers["x-should-retry"] == retry
    assert response.headers.get("retry-after") == (None if retry == "false" else "120")


def test_when_one_of_several_choices_finds_no_place_none_is_answered(
    client: httpx2.Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = served.engine.submit

    def two_places(request: Any) -> Any:
        if served.engine.open == 2:
            raise Failure("queue_full", "no place")
        return submit(request)

    monkeypatch.setattr(served.engine, "submit", two_places)
    assert client.post(CHAT, json=chat_body(n=3)).status_code == 429
    assert served.engine.open == 0
    assert len(served.engine.cancelled) == 2


def test_a_bug_while_streaming_is_an_error_event(client: httpx2.Client, served: Served, caplog: Any) -> None:
    def broken(request: Any) -> list[str]:
        # A traceback quotes this line, so the word must not stand in it.
        raise ZeroDivisionError("yranac"[::-1])

    served.engine.answer = broken
    assert events_of(client.post(CHAT, json=chat_body(stream=True)).text)[-1]["error"]["code"] == "internal_error"
    response = client.post(CHAT, json=chat_body())
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "ZeroDivisionError" in caplog.text
    assert "canary" not in caplog.text


def test_a_stopping_server_ends_each_stream_and_is_gone_in_time(tmp_path: Path) -> None:
    with serving(tmp_path) as served, served.connect() as stream, served.connect() as whole, served.connect() as idle:
        served.call(served.engine.gate.clear)
        stream.sendall(post(CHAT, chat_body(stream=True)))
        read_until(stream, b"\r\n\r\n")
        whole.sendall(post(CHAT, chat_body()))
        eventually(lambda: served.engine.open == 2)
        started_s = time.monotonic()
        served.call(served.http.stop)
        assert time.monotonic() - started_s < 5
        assert b'"shutting_down"' in read_until(stream, b"0\r\n\r\n")
        assert whole.recv(4096).startswith(b"HTTP/1.1 503")
        assert idle.recv(10) == b""
        assert served.engine.open == 0
        assert not served.path.exists()


def test_a_client_that_reads_nothing_does_not_keep_the_server(tmp_path: Path) -> None:
    with serving(tmp_path, settings=ServerSettings(stop_s=1)) as served, served.connect() as deaf:
        served.engine.answer = lambda _: ["x" * 4096] * 4096
        body = chat_body(stream=True)
        deaf.sendall(post(CHAT, body))
        eventually(lambda: served.engine.produced > 40)
        started_s = time.monotonic()
        served.call(served.http.stop)
        assert time.monotonic() - started_s < 5


def test_twenty_clients_at_once_all_get_their_answers(served: Served) -> None:
    served.engine.pace_s = 0.002
    socks = [served.connect() for _ in range(20)]
    for number, sock in enumerate(socks):
        sock.sendall(post(CHAT, chat_body(f"client {number}", stream=number % 2 == 0)))
    for sock in socks:
        assert b'"finish_reason":"stop"' in read_until(sock, b'"stop"')
        sock.close()


def test_no_prompt_and_no_answer_reaches_a_log(
    client: httpx2.Client, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    served.engine.answer = lambda _: ("canary-answer",)
    client.post(CHAT, json=chat_body("canary-prompt"))
    client.post(CHAT, json=chat_body("canary-prompt", stream=True, temperature="canary-value"))
    client.post(CHAT, json=chat_body("canary-prompt" * 100))
    client.post("/v1/completions?canary-query", content=b'{"prompt": "canary-prompt", "x"')
    client.post("/tokenize", json={"content": "canary-prompt"})
    served.engine.dies_after = 0
    client.post(CHAT, json=chat_body("canary-prompt"))
    ours = [record for record in caplog.records if record.name.startswith(("optaned", "uvicorn", "asyncio"))]
    assert any("POST /v1/chat/completions 200" in record.getMessage() for record in ours)
    assert "canary" not in "\n".join(record.getMessage() for record in ours)


def test_half_a_request_is_told_that_the_server_stops(tmp_path: Path) -> None:
    with serving(tmp_path, settings=ServerSettings(stop_s=1)) as served, served.connect() as sock:
        sock.sendall(post(CHAT, chat_body())[:-5])
        eventually(lambda: len(served.http._server.server_state.tasks) == 1, what="the request is being read")
        served.call(served.http.stop)
        answer = read_until(sock, b"}}")
        assert answer.startswith(b"HTTP/1.1 503")
        assert b'"shutting_down"' in answer
