"""A real HTTP server on a real Unix socket in a thread of its own, with fakes behind it. Knows no client library."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optaned.hooks.drivers import ChatDelta
from optaned.server.app import build_app
from optaned.server.bind import bind
from optaned.server.http import HttpServer
from optaned.server.settings import ServerSettings
from optaned.testing.ports import FakeEngine, FakePause, FakeTokenizer


class ThinkParser:
    """Tells `<think>…</think>` apart, where the tags come as pieces of their own."""

    def __init__(self) -> None:
        self.thinks = False

    def feed(self, text: str) -> ChatDelta:
        if text in ("<think>", "</think>"):
            self.thinks = text == "<think>"
            return ChatDelta()
        return ChatDelta(reasoning=text) if self.thinks else ChatDelta(content=text)

    def finish(self) -> ChatDelta:
        return ChatDelta()


@dataclass
class Served:
    """A running server and what is behind it; `parsed` are the prompts for which a parser was opened."""

    path: Path
    engine: FakeEngine
    tokenizer: FakeTokenizer
    pause: FakePause
    loop: asyncio.AbstractEventLoop
    http: HttpServer
    parsed: list[str] = field(default_factory=list)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function, or await what it returns, in the server's loop."""

        async def run() -> Any:
            result = function(*args)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(20)

    def connect(self) -> socket.socket:
        """Return a bare connection."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(20)
        sock.connect(str(self.path))
        return sock


@contextmanager
def serving(
    folder: Path, *, engine: FakeEngine | None = None, settings: ServerSettings | None = None
) -> Iterator[Served]:
    """Run a server at `folder/s`, with fakes behind it."""
    started: Any = {}
    ready = threading.Event()
    path = folder / "s"

    async def main() -> None:
        parsed: list[str] = []
        fakes = engine or FakeEngine(), FakeTokenizer(), FakePause()

        def parser(rendered: str) -> ThinkParser:
            parsed.append(rendered)
            return ThinkParser()

        app = build_app(
            *fakes,
            parsers=parser,
            models=("fake", "other"),
            settings=settings,
            log=logging.getLogger("optaned.test"),
        )
        http = HttpServer(app, bind(path), settings=settings)
        await http.start()
        started["over"] = asyncio.Event()
        started["served"] = Served(path, *fakes, asyncio.get_running_loop(), http, parsed)
        ready.set()
        await started["over"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(10)
    served: Served = started["served"]
    try:
        yield served
    finally:
        served.call(served.engine.gate.set)
        served.call(served.http.stop)
        served.loop.call_soon_threadsafe(started["over"].set)
        thread.join(10)
        assert not thread.is_alive()


def chat_body(text: str = "hi", **more: Any) -> dict[str, Any]:
    """Return the body of a chat request."""
    return {"model": "fake", "messages": [{"role": "user", "content": text}], **more}


def events_of(text: str) -> list[Any]:
    """Return the data events of a finished stream, and check that each is framed as the format demands."""
    assert text.endswith("\n\n")
    blocks = [block for block in text.split("\n\n")[:-1] if not block.startswith(":")]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [block if block == "data: [DONE]" else json.loads(block[6:]) for block in blocks]
