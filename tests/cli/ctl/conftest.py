"""A fake daemon with behaviour on a real Unix socket, and `optanectl` run as a real process, piped or on a terminal."""

from __future__ import annotations

import http.server
import json
import os
import pty
import select
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

MAIN = "from optaned.cli.optanectl import main; main()"
# A pseudo-terminal sends Ctrl-C only to a process that it controls.
MAIN_ON_TTY = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {MAIN}"
WITHIN_S = 20.0
METRICS = b"""# HELP optaned_slots Slots by what they do
optaned_slots{state="idle"} 1
optaned_prompt_tokens_total 40
optaned_completion_tokens_total 300.0
optaned_decode_seconds_total 4
"""


@dataclass
class FakeDaemon:
    """What it answers can be changed while it runs. `script` is what a chat stream does, step by step.

    A step is text of the answer, {"reasoning": text}, {"comment": text}, {"error": {...}}, {"wait": Event},
    {"raw": bytes} or "CUT", which breaks the connection.
    """

    path: Path
    ready: dict[str, Any] = field(default_factory=dict)
    slots: list[dict[str, Any]] = field(default_factory=list)
    script: list[Any] = field(default_factory=lambda: ["Hello", " there"])
    tiers: dict[str, Any] = field(default_factory=dict)
    traced: list[bytes] = field(default_factory=list)
    refusal: tuple[int, dict[str, Any]] | None = None
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    loads: Callable[[], None] = lambda: None

    @property
    def asked(self) -> list[list[dict[str, str]]]:
        """The messages of each chat request."""
        return [body["messages"] for _, path, body in self.requests if path == "/v1/chat/completions"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def fake(self) -> FakeDaemon:
        return self.server.fake  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def address_string(self) -> str:
        return "unix"

    def do_GET(self) -> None:
        self.fake.requests.append(("GET", self.path, None))
        ready = self.fake.ready
        if self.path == "/metrics":
            return self.reply(200, METRICS)
        answers = {
            "/ready": (200 if ready["state"] == "ready" else 503, ready),
            "/slots": (200, self.fake.slots),
            "/v1/models": (200, {"object": "list", "data": [
                {"id": "tiny", "state": "ready", "meta": {"n_ctx": 4096}}, {"id": "huge", "state": "unloaded"}]}),
            "/tiers": (200, self.fake.tiers),
        }  # fmt: skip
        return self.reply_json(*answers[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.fake.requests.append(("POST", self.path, body))
        if self.fake.refusal:
            return self.reply_json(*self.fake.refusal)
        if self.path == "/tokenize":
            tokens = [{"id": 7, "piece": body["content"]}, {"id": 8, "piece": [240, 159]}]
            return self.reply_json(200, {"tokens": tokens})
        if self.path == "/tiers/move":
            return self.reply_json(200, {**body, "detail": f"{body['do']} done"})
        if self.path == "/trace":
            return self.trace()
        if self.path in ("/load", "/unload"):
            self.fake.loads()
            return self.reply_json(200, {"model": body.get("model")})
        return self.stream()

    def reply_json(self, status: int, value: Any) -> None:
        self.reply(status, json.dumps(value).encode())

    def reply(self, status: int, raw: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def trace(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for line in self.fake.traced:
                self.chunk(line)
            self.wait_for(threading.Event())
        except (BrokenPipeError, ConnectionResetError):
            self.fake.left.set()

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for step in self.fake.script:
                if step == "CUT":
                    return self.connection.close()
                self.play(step)
        except (BrokenPipeError, ConnectionResetError):
            self.fake.left.set()
            return None
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
        timings = {"predicted_per_second": 98.06}
        self.event({"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": timings})
        self.event({"choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        return None

    def play(self, step: Any) -> None:
        if isinstance(step, str):
            self.event({"choices": [{"delta": {"content": step}, "finish_reason": None}]})
        elif "reasoning" in step:
            self.event({"choices": [{"delta": {"reasoning_content": step["reasoning"]}, "finish_reason": None}]})
        elif "comment" in step:
            self.chunk(f": {step['comment']}\n\n".encode())
        elif "raw" in step:
            self.chunk(step["raw"])
        elif "wait" in step:
            self.wait_for(step["wait"])
        else:
            self.event(step)

    def wait_for(self, event: threading.Event) -> None:
        """Keep the stream silent until `event`, or until the client leaves."""
        while not event.wait(0.01):
            if select.select([self.connection], [], [], 0)[0] and not self.connection.recv(1):
                raise BrokenPipeError

    def event(self, value: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, raw: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(raw), raw))
        self.wfile.flush()


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    fake: FakeDaemon


def ready_view(state: str = "ready", **changes: Any) -> dict[str, Any]:
    thermal = {"level": "cool", "duty": 1.0, "reason": "", "paused": False}
    view = {"state": state, "model": "tiny", "fraction": 1.0, "detail": "", "waiting": 0, "thermal": thermal}
    return {**view, **changes}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    path = tmp_path / "d.sock"
    with Server(str(path), Handler) as server:
        server.fake = FakeDaemon(path, ready_view())
        server.fake.slots = [{"slot": 0, "state": "idle", "request": None, "prompt_tokens": 0, "prefilled_tokens": 0,
                              "completion_tokens": 0, "cached_tokens": 0}]  # fmt: skip
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.fake
        server.shutdown()
        thread.join()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def ctl(daemon: FakeDaemon) -> Callable[..., Outcome]:
    """Run optanectl piped: `ctl("run", "Hi", stdin="…", env={…})`."""

    def run(*args: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Outcome:
        source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin.encode()}
        found = subprocess.run(
            [sys.executable, "-c", MAIN, *args], capture_output=True, timeout=WITHIN_S, check=False,
            env={**os.environ, "OPTANED_HOST": f"unix://{daemon.path}", **(env or {})}, **source,
        )  # fmt: skip
        return Outcome(found.returncode, found.stdout.decode(), found.stderr.decode())

    return run


@pytest.fixture
def piping(daemon: FakeDaemon) -> Callable[..., subprocess.Popen[bytes]]:
    """Start optanectl with pipes for its output."""

    def start(*args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**os.environ, "OPTANED_HOST": str(daemon.path)},
        )  # fmt: skip

    return start


class TerminalSession:
    """optanectl on a pseudo-terminal, typed at as a person would."""

    def __init__(self, host: Path, *args: str, **env: str) -> None:
        self._master, slave = pty.openpty()
        self.seen = ""
        surroundings = {**os.environ, "OPTANED_HOST": str(host), "TERM": "xterm", "COLUMNS": "100", **env}
        surroundings.pop("NO_COLOR", None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", MAIN_ON_TTY, *args], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=surroundings,
        )  # fmt: skip
        os.close(slave)

    def expect(self, text: str) -> str:
        """Read until `text` is seen after what was expected before; return what came up to it."""
        deadline = time.monotonic() + WITHIN_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} never came; the screen has {self.seen!r}"
            if not self._read():
                pytest.fail(f"{text!r} never came; the end was {self.seen!r}")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, keys: str) -> None:
        """Type once the program waits for it: CPython's line editor misses a Ctrl-C between its prompt and its wait."""
        deadline = time.monotonic() + WITHIN_S
        while "(sleeping)" not in Path(f"/proc/{self._process.pid}/status").read_text():
            assert time.monotonic() < deadline, "the program never waits for input"
        os.write(self._master, keys.encode())

    def finish(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            pass
        return self._process.wait(WITHIN_S)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        if not select.select([self._master], [], [], WITHIN_S)[0]:
            return False
        try:
            raw = os.read(self._master, 4096)
        except OSError:  # EIO: the other side is closed
            return False
        self.seen += raw.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(raw)


@pytest.fixture
def on_terminal(daemon: FakeDaemon) -> Iterator[Callable[..., TerminalSession]]:
    sessions: list[TerminalSession] = []

    def start(*args: str, **env: str) -> TerminalSession:
        sessions.append(TerminalSession(daemon.path, *args, **env))
        return sessions[-1]

    yield start
    for session in sessions:
        session.close()


@pytest.fixture
def view() -> Callable[..., dict[str, Any]]:
    """Return a maker of `/ready` bodies: `view("loading", fraction=0.4)`."""
    return ready_view
