"""The child process, talked to by a parent that only knows frames."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from optaned.domain.generation import FinishReason, Sampling
from optaned.engine.client import Child
from optaned.engine.keeper import Patience
from optaned.engine.messages import (
    Cancel,
    Close,
    Detokenize,
    Finished,
    FromWorker,
    Generate,
    Loading,
    Open,
    Opened,
    Pieces,
    Refused,
    Role,
    Started,
    Text,
)
from optaned.system.pidfd import process_stat
from optaned.testing.daemon import eventually


def opening(role: Role = Role.ENGINE, *, word_path: str | None = None, **options: Any) -> Open:
    return Open(
        role=role,
        backend="echo",
        options=options,
        files=(),
        context=4000,
        slots=2,
        threads=1,
        batch=3000,
        kv_cache="f16",
        word_path=word_path,
    )


class Heard:
    """What a child said."""

    def __init__(self) -> None:
        self.messages: list[FromWorker] = []

    def has(self, kind: type) -> bool:
        return any(isinstance(message, kind) for message in self.messages)

    def text(self) -> str:
        return "".join(piece.text for m in self.messages if isinstance(m, Pieces) for piece in m.pieces)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30.0):
        while not condition():  # noqa: ASYNC110  conditions of other processes too
            await asyncio.sleep(0.005)


@asynccontextmanager
async def child(wanted: Open | None) -> AsyncIterator[tuple[Child, Heard]]:
    heard = Heard()
    worker = await Child.spawn(heard.messages.append)
    try:
        if wanted is not None:
            worker.send(wanted)
        yield worker, heard
    finally:
        worker.kill()
        await worker.wait()


def generate(text: str) -> Generate:
    return Generate(id="a", prompt=tuple(text.encode()), sampling=Sampling(), max_tokens=1000)


def test_an_engine_loads_answers_and_ends_when_told() -> None:
    async def story() -> None:
        async with child(opening(load_delay_s=0.3)) as (worker, heard):
            await until(lambda: heard.has(Opened))
            assert heard.has(Loading)
            worker.send(generate("grüß Gott"))
            await until(lambda: heard.has(Finished))
            assert heard.text() == "grüß Gott"
            worker.send(Close())
            assert await worker.wait() == "ended with exit code 0"

    asyncio.run(story())


def test_a_tokenizer_answers_questions_and_ends_when_told() -> None:
    async def story() -> None:
        async with child(opening(Role.TOKENIZER)) as (worker, heard):
            worker.send(Detokenize("d", (104, 105)))
            await until(lambda: Text("d", "hi") in heard.messages)
            worker.send(Close())
            assert await worker.wait() == "ended with exit code 0"

    asyncio.run(story())


def test_a_cancel_is_heard_in_the_middle_of_a_prefill_call() -> None:
    async def story() -> None:
        async with child(opening(prefill_delay_s_per_token=0.1)) as (worker, heard):
            worker.send(generate("x" * 2900))
            await until(lambda: heard.has(Started))
            worker.send(Cancel("a"))
            await until(lambda: heard.has(Finished))
            (end,) = [m for m in heard.messages if isinstance(m, Finished)]
            assert end.reason is FinishReason.CANCELLED

    asyncio.run(story())


@pytest.mark.parametrize(
    "directive, reason",
    [
        ("[[exit 3 at 1]]", "ended with exit code 3"),
        ("[[crash 6 at 1]]", "aborted (SIGABRT)"),
        ("[[crash 11 at prefill]]", "crashed (SIGSEGV)"),
        ("[[crash 9 at 0]]", "was killed by signal 9"),
    ],
)
def test_the_parent_learns_how_a_child_ended(directive: str, reason: str) -> None:
    async def story() -> None:
        async with child(opening()) as (worker, _):
            worker.send(generate(f"abc{directive}"))
            assert (await worker.wait()).startswith(reason)

    asyncio.run(story())


def test_a_refusal_comes_with_its_lines_and_exit_code() -> None:
    async def story() -> None:
        async with child(opening(load_error="no room")) as (worker, heard):
            assert await worker.wait() == "ended with exit code 69"
            assert heard.messages[-1] == Refused(("no room",), 69)

    asyncio.run(story())


def test_a_first_frame_that_opens_nothing_is_a_mistake_of_the_caller() -> None:
    async def story() -> None:
        async with child(None) as (worker, _):
            worker.send(Cancel("a"))
            assert await worker.wait() == "ended with exit code 64"

    asyncio.run(story())


def test_the_memory_of_a_tokenizer_is_bounded_and_that_of_an_engine_is_not() -> None:
    async def story() -> None:
        for role, bound in ((Role.TOKENIZER, str(4 << 30)), (Role.ENGINE, "unlimited")):
            async with child(opening(role)) as (worker, heard):
                await until(lambda heard=heard: heard.has(Opened))
                limits = Path(f"/proc/{worker.pid}/limits").read_text().splitlines()  # noqa: ASYNC240
                (data,) = [line.split() for line in limits if line.startswith("Max data size")]
                assert data[3] == bound

    asyncio.run(story())


def test_a_child_ignores_ctrl_c_and_offers_itself_to_the_oom_killer() -> None:
    async def story() -> None:
        async with child(opening()) as (worker, heard):
            await until(lambda: heard.has(Opened))
            os.kill(worker.pid, signal.SIGINT)
            proc = Path(f"/proc/{worker.pid}")
            assert int((proc / "oom_score_adj").read_text()) >= 500
            assert os.getsid(worker.pid) == worker.pid
            limits = (proc / "limits").read_text().splitlines()
            (core,) = [line.split() for line in limits if line.startswith("Max core file size")]
            assert core[4] in ("0", "1")
            worker.send(generate("alive"))
            await until(lambda: heard.has(Finished))

    asyncio.run(story())


def test_an_engine_without_a_thermal_word_stops_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with child(opening(word_path=str(tmp_path / "no.word"))) as (worker, _):

            def is_stopped() -> bool:
                stat = process_stat(worker.pid)
                return stat is not None and stat.is_stopped

            await until(is_stopped)
            worker.kill()
            assert await worker.wait() == "was killed by signal 9"

    asyncio.run(story())


# A parent that starts a worker, tells its pid, and waits to be killed.
PARENT = """
import asyncio, os, signal, sys
from optaned.engine.client import Child
from optaned.engine.messages import Open, Opened, Role

async def main():
    opened = asyncio.Event()
    child = await Child.spawn(lambda message: opened.set() if isinstance(message, Opened) else None)
    child.send(Open(role=Role.ENGINE, backend="echo", options={}, files=(), context=100, slots=1, threads=1, batch=8,
                    kv_cache="f16"))
    await opened.wait()
    if sys.argv[1] == "stopped":
        os.kill(child.pid, signal.SIGSTOP)
    print(child.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_child_dies_with_its_parent(state: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, state], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert process_stat(pid) is not None
        parent.kill()
        eventually(lambda: (stat := process_stat(pid)) is None or stat.state == "Z")


def test_a_child_whose_parent_is_another_one_leaves_quietly() -> None:
    arguments = [sys.executable, "-m", "optaned.engine.worker", "--fd", "0", "--parent", "1"]
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "parent 1 is gone" in done.stderr


def test_patience_doubles_its_delays_and_ends() -> None:
    patience = Patience(first_delay_s=0.2, max_delay_s=1.0, max_deaths=6)
    assert [patience.delay_s(deaths) for deaths in range(1, 7)] == [0.2, 0.4, 0.8, 1.0, 1.0, None]
