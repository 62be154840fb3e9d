"""Whatever bytes come in, a client's mistake is a 4xx in JSON and the server lives on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optaned.server.body import MAX_DEPTH, parse_object
from optaned.server.chat import ChatBody
from optaned.server.completions import CompletionBody
from optaned.server.embeddings import EmbeddingsBody
from optaned.server.faults import ApiError
from optaned.server.settings import ServerSettings
from optaned.testing.daemon import eventually
from optaned.testing.serving import Served, chat_body, serving

PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/load",
)

MALFORMED = {
    "empty": b"",
    "no json": b"hello",
    "cut": b'{"model": "fa',
    "an array": b"[]",
    "a number": b"3",
    "null": b"null",
    "not utf-8": b'{"model": "\xff\xfe"}',
    "utf-16": '{"model": "fake"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "half a pair": b'{"model": "\\ud800"}',
    "halves in the wrong order": b'{"model": "\\udc00\\ud800"}',
    "half a pair as a name": b'{"\\ud800": 1}',
    "nan": b'{"temperature": NaN}',
    "infinity": b'{"temperature": -Infinity}',
    "beyond a double": b'{"temperature": 1e999}',
    "beyond 64 bits": b'{"seed": 340282366920938463463374607431768211456}',
    "many digits": b'{"seed": ' + b"9" * 10_000 + b"}",
    "a name twice": b'{"model": "a", "model": "b"}',
    "deep arrays": b'{"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep objects": b'{"x":' * 10_000 + b"1" + b"}" * 10_000,
    "not so deep": b'{"x": ' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}",
    "a control character": b'{"model": "\x01"}',
    "two values": b"{}{}",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_bodies_are_400s(client: httpx2.Client, body: bytes) -> None:
    for path in PATHS:
        response = client.post(path, content=body)
        assert response.status_code == 400, (path, response.text)
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


USER = [{"role": "user", "content": "x"}]
MISTYPED = [
    ({}, "messages is required", "messages"),
    ({"messages": [{"content": "x"}]}, "messages[0].role is required", "messages[0].role"),
    ({"messages": [{"role": "boss"}]}, "messages[0].role: unknown value 'boss'", "messages[0].role"),
    ({"messages": USER, "temperature": -1}, "temperature: expected a number >= 0.0", "temperature"),
    ({"messages": USER, "seed": "x"}, "seed: expected an integer, got a string", "seed"),
    ({"messages": USER, "stop": 5}, "stop: expected a string or an array, got an integer", "stop"),
    ({"messages": USER, "logit_bias": {"1": 101}}, "logit_bias: expected a number <= 100.0", "logit_bias"),
]


@pytest.mark.parametrize(("body", "message", "param"), MISTYPED, ids=range(len(MISTYPED)))
def test_a_wrong_value_is_told_with_its_name(client: httpx2.Client, body: Any, message: str, param: str) -> None:
    """The SDKs show the message alone; it must say which parameter is meant."""
    error = client.post("/v1/chat/completions", json=body).json()["error"]
    assert (error["message"], error["param"], error["code"]) == (message, param, None)


def test_what_is_odd_but_json_is_read() -> None:
    assert parse_object(b' {"a": "\\ud83d\\ude00", "b": 1e308, "c": -9223372036854775808, "d": "\\u0000"} ') == {
        "a": "😀",
        "b": 1e308,
        "c": -(1 << 63),
        "d": "\0",
    }
    deep = b'{"x": ' + b"[" * (MAX_DEPTH - 2) + b"]" * (MAX_DEPTH - 2) + b"}"
    assert parse_object(deep)


@given(st.binary())
def test_any_bytes_parse_or_are_refused(body: bytes) -> None:
    try:
        value: Any = parse_object(body)
    except ApiError as fault:
        value = fault
    assert isinstance(value, dict) or value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
NAMES = st.sampled_from(
    sorted(
        {*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__, *EmbeddingsBody.__struct_fields__}
        | {"tools", "tool_choice", "echo", "suffix", "user", "content", "with_pieces"}
    )
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "x"]) | JSON},
        optional={"content": JSON, "name": JSON, "tool_calls": JSON, "reasoning_content": JSON},
    ),
    max_size=3,
)
# A valid body for every path, in which a few fields are replaced: deep enough to reach what lies behind the types.
VALID = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x", "content": "x", "tokens": [1]}
BODIES = st.one_of(
    st.dictionaries(NAMES, JSON, max_size=2).map(lambda more: {**VALID, **more}),
    MESSAGES.map(lambda messages: {**VALID, "messages": messages}),
    st.lists(st.integers() | st.text(max_size=3), max_size=3).map(lambda items: {**VALID, "prompt": items}),
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, httpx2.Client]]:
    with serving(tmp_path_factory.mktemp("fuzz")) as served:
        transport = httpx2.HTTPTransport(uds=str(served.path))
        with httpx2.Client(transport=transport, base_url="http://optaned", timeout=20) as client:
            yield served, client


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES, path=st.sampled_from(PATHS[:-1]))
def test_fuzzed_bodies_never_give_a_5xx(fuzzed: tuple[Served, httpx2.Client], body: dict[str, Any], path: str) -> None:
    served, client = fuzzed
    response = client.post(path, content=json.dumps(body).encode())
    assert response.status_code < 500, (response.text, body)
    if response.status_code >= 400:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert served.engine.open == 0
    assert client.get("/health").status_code == 200


def exchange(served: Served, *parts: bytes) -> bytes:
    """Send bytes as they are, and return all that comes until the server closes."""
    with served.connect() as sock:
        for part in parts:
            sock.sendall(part)
        seen = b""
        while True:
            try:
                more = sock.recv(65536)
            except ConnectionResetError:
                return seen
            if not more:
                return seen
            seen += more


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /health HTTP/1.1\r\nBad Header\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /h\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000,
        b"POST /load HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /load HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=range(8),
)
def test_what_is_no_http_gets_a_400_in_json(served: Served, garbage: bytes) -> None:
    answer = exchange(served, garbage)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4"), answer
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


def test_what_is_no_http_is_told_what_is_wrong(served: Served) -> None:
    assert b"this is no HTTP request: missing mandatory Host: header" in exchange(served, b"GET / HTTP/1.1\r\n\r\n")
    length = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"
    assert b"this is no HTTP request: bad Content-Length" in exchange(served, length)


def test_a_client_that_leaves_in_its_body_is_no_bug(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with served.connect() as sock:
        sock.sendall(b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
    eventually(lambda: any("/tokenize 499" in record.message for record in caplog.records))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_garbage_behind_a_running_answer_only_closes(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    payload = json.dumps(chat_body(stream=True)).encode()
    served.engine.pace_s = 0.01
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
    exchange(served, head + payload, b"\x00\x01\x02 garbage\r\n\r\n")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def limited(folder: Path, **values: Any) -> Any:
    return serving(folder, settings=ServerSettings(**values))


def test_a_header_that_never_ends_is_a_408(tmp_path: Path) -> None:
    with limited(tmp_path, header_timeout_s=0.1) as served:
        assert exchange(served, b"GET /health HT").startswith(b"HTTP/1.1 408")
        assert exchange(served).startswith(b"HTTP/1.1 408")


def test_the_second_header_of_a_connection_has_its_deadline_too(tmp_path: Path) -> None:
    with limited(tmp_path, header_timeout_s=0.2) as served:
        answer = exchange(served, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /heal")
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in answer


def test_an_answer_may_take_longer_than_a_header(tmp_path: Path) -> None:
    with limited(tmp_path, header_timeout_s=0.05) as served:
        served.engine.pace_s = 0.05
        payload = json.dumps(chat_body()).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n"
        assert exchange(served, f"{head}Host: a\r\n\r\n".encode(), payload).startswith(b"HTTP/1.1 200")


def test_a_body_that_never_comes_is_a_408(tmp_path: Path) -> None:
    with limited(tmp_path, body_timeout_s=0.1) as served:
        answer = exchange(served, b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"request_timeout" in answer


def test_a_body_that_is_too_large_is_a_413_before_it_ends(tmp_path: Path) -> None:
    with limited(tmp_path, max_body_bytes=1000) as served:
        told = exchange(served, b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n")
        assert told.startswith(b"HTTP/1.1 413")
        assert b"larger than 1000 B, the limit that [server] max_body sets" in told
        chunked = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        untold = exchange(served, chunked, b"400\r\n" + b"x" * 1024 + b"\r\n")
        assert untold.startswith(b"HTTP/1.1 413")
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(served.path)), base_url="http://a") as client:
            assert client.post("/tokenize", content=b"x" * 3_000_000).status_code == 413


def test_a_client_that_waits_for_100_continue_gets_it(served: Served) -> None:
    head = (
        b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    with served.connect() as sock:
        sock.sendall(head)
        assert sock.recv(100).startswith(b"HTTP/1.1 100")
        sock.sendall(b'{"content":""}')
        assert sock.recv(100).startswith(b"HTTP/1.1 200")


def test_beyond_the_cap_a_connection_gets_a_503(tmp_path: Path) -> None:
    with limited(tmp_path, max_connections=2) as served:
        held: list[socket.socket] = [served.connect(), served.connect()]
        answer = exchange(served, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"too_many_connections" in answer
        for sock in held:
            sock.close()
