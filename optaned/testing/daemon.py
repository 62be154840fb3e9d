"""A real daemon for tests and benchmarks: started, watched and stopped as a person would. Imports no part of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("optaned", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def eventually(condition: Callable[[], Any], *, within_s: float = 30.0, what: str = "") -> Any:
    """Return the first true value of `condition`, asked every 10 ms; AssertionError when there is none in time."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"never became true within {within_s:g} s: {what or condition}")
        time.sleep(0.01)


@dataclass
class Daemon:
    """A running `optaned serve`. `log` is what it wrote to stderr so far."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "optaned.sock"

    @property
    def log(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def request(self, method: str, path: str, body: Any = None, *, timeout_s: float = 30.0) -> tuple[int, Any]:
        """Send one request; return the status and the decoded JSON (or text)."""
        connection = _UnixConnection(self.socket, timeout_s)
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, path, payload, {"content-type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
            return response.status, json.loads(text) if "json" in (response.headers["content-type"] or "") else text
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return the body of a GET, whatever its status."""
        return self.request("GET", path)[1]

    def stream(self, path: str, body: dict[str, Any], *, timeout_s: float = 60.0) -> Iterator[str]:
        """Send a streaming request and yield its lines as they come."""
        connection = _UnixConnection(self.socket, timeout_s)
        try:
            connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
            for line in connection.getresponse():
                yield line.decode().rstrip("\n")
        finally:
            connection.close()

    def is_ready(self) -> bool:
        """Say whether the model answers; AssertionError with the log when the daemon has died."""
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log}")
        try:
            return self.request("GET", "/ready")[0] == 200
        except (FileNotFoundError, ConnectionError):
            return False

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, *, within_s: float = 20.0) -> int:
        """Ask it to end, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)


@contextmanager
def daemon(folder: Path, config: str, *, ready: bool = True, within_s: float = 90.0) -> Iterator[Daemon]:
    """Run `optaned serve` on a configuration, its runtime and state below `folder`; killed at the end if still there.

    The socket is `folder/optaned.sock`. `ready=False` returns as soon as the process is started.
    """
    file = folder / "optaned.toml"
    file.write_text(config)
    environment = {
        **os.environ,
        "OPTANED_RUNTIME_DIR": str(folder),
        "OPTANED_STATE_DIR": str(folder / "state"),
        "PYTHONUNBUFFERED": "1",
    }
    with (folder / "stderr").open("ab") as stderr:
        command = [sys.executable, "-m", "optaned.cli.optaned", "serve", "--config", str(file)]
        process = subprocess.Popen(command, stdout=stderr, stderr=stderr, env=environment)
    running = Daemon(process, folder)
    try:
        if ready:
            eventually(running.is_ready, within_s=within_s, what="the model is ready")
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
