"""Clients that people have, unchanged: curl, and two majors of the OpenAI SDK."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from optaned.engine.messages import Generate
from optaned.server.ports import Event
from optaned.server.settings import ServerSettings
from optaned.testing.ports import FakeEngine
from optaned.testing.serving import Served, chat_body, serving

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = Path(__file__).with_name("openai_contract.py")


class Actor(FakeEngine):
    """An engine that dies when asked to die, and is slow when asked to be slow."""

    async def events(self, request: Generate) -> AsyncIterator[Event]:
        text = bytes(token for token in request.prompt if token < 256)
        self.dies_after = 2 if b"die" in text else None
        self.pace_s = 0.25 if b"slow" in text else 0.0
        async for event in super().events(request):
            yield event


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, engine=Actor(), settings=ServerSettings(ping_s=0.1)) as served:
        yield served


def contract(served: Served, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, CONTRACT, served.path],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_newest_openai_sdk_works_unchanged(stage: Served) -> None:
    assert contract(stage).startswith("openai 3.")
    assert stage.engine.open == 0


def test_an_older_openai_sdk_works_unchanged(stage: Served) -> None:
    folder = ROOT / "build" / "openai2"
    if not folder.is_dir():
        pytest.skip("no older SDK: pip install --target build/openai2 'openai>=2,<3'")
    assert contract(stage, PYTHONPATH=str(folder)).startswith("openai 2.")


def curl(served: Served, *arguments: str) -> str:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["curl", "-sS", "--max-time", "20", "--unix-socket", str(served.path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_curl_works_unchanged(served: Served) -> None:
    assert json.loads(curl(served, "http://localhost/v1/models"))["data"][0]["id"] == "fake"
    url = "http://localhost/v1/chat/completions"
    answer = json.loads(curl(served, url, "-d", json.dumps(chat_body())))
    assert answer["choices"][0]["message"]["content"] == "Hello, wörld!"
    assert curl(served, "-N", url, "-d", json.dumps(chat_body(stream=True))).endswith("data: [DONE]\n\n")
    assert "HTTP/1.1 200 OK" in curl(served, "-I", "http://localhost/health")
    big = json.dumps(chat_body("x" * 5000))
    assert "context_length_exceeded" in curl(served, url, "-H", "Expect: 100-continue", "-d", big)
