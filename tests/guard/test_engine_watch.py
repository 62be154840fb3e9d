"""The guard's own hand on the engine: whom it believes, and what it stops."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from optaned.domain.thermal import Level
from optaned.errors import AccessError
from optaned.guard import engine_watch
from optaned.guard.engine_watch import MOST_ENGINES, EngineWatch
from optaned.system.handover import hand_over
from optaned.system.pidfd import Pidfd
from optaned.testing.daemon import eventually
from optaned.testing.processes import Busy, busy_child


class Bench:
    """An engine watch with its socket, and callers that wait for its answer."""

    def __init__(self, path: Path, service_uid: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.path = path
        self.watch = EngineWatch(path, self.selector, service_uid=service_uid)
        self._caller = ThreadPoolExecutor(1)

    def hand_over(self, pid: int) -> None:
        held = Pidfd.open(pid)
        call = self._caller.submit(hand_over, self.path, held, deadline_s=20)
        eventually(lambda: self.serve() or call.done())
        held.close()
        call.result()

    def serve(self) -> None:
        for key, _ in self.selector.select(0.01):
            key.data()

    def close(self) -> None:
        self._caller.shutdown()
        self.watch.close()
        self.selector.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "engine.sock", os.geteuid())
    yield bench
    bench.close()


@pytest.fixture
def engine() -> Iterator[Busy]:
    with busy_child() as engine:
        yield engine


def test_an_engine_that_still_runs_after_critical_is_stopped(bench: Bench, engine: Busy) -> None:
    bench.hand_over(engine.pid)
    bench.watch.obey(Level.CRITICAL, now_s=10.0)
    assert bench.watch.act_at_s == pytest.approx(10.1)
    bench.watch.act(now_s=10.05)
    assert engine.runs()
    bench.watch.act(now_s=10.1)
    eventually(engine.stands_still)


def test_one_that_is_resumed_too_early_is_stopped_again(bench: Bench, engine: Busy) -> None:
    bench.hand_over(engine.pid)
    for now_s in (10.0, 11.0):
        bench.watch.obey(Level.TRIP, now_s=now_s)
        bench.watch.act(now_s=now_s + 0.2)
        eventually(engine.stands_still)
        engine.resume()


def test_below_critical_nothing_is_stopped_and_nothing_resumed(bench: Bench, engine: Busy) -> None:
    bench.hand_over(engine.pid)
    bench.watch.obey(Level.CRITICAL, now_s=10.0)
    bench.watch.obey(Level.HOT, now_s=10.05)
    bench.watch.act(now_s=10.2)
    assert engine.runs()
    engine.stop()
    bench.watch.obey(Level.COOL, now_s=11.0)
    bench.watch.act(now_s=12.0)
    assert engine.stands_still()


def test_a_dead_engine_is_forgotten_and_makes_room(bench: Bench) -> None:
    for _ in range(MOST_ENGINES + 1):
        with busy_child("import time; time.sleep(300)") as engine:
            bench.hand_over(engine.pid)
    bench.watch.obey(Level.CRITICAL, now_s=1.0)
    bench.watch.act(now_s=2.0)


def test_too_many_living_engines_are_refused(bench: Bench, engine: Busy) -> None:
    for _ in range(MOST_ENGINES):
        bench.hand_over(engine.pid)
    with pytest.raises(AccessError, match="being watched already"):
        bench.hand_over(engine.pid)


def test_only_the_service_account_is_believed(tmp_path: Path, engine: Busy) -> None:
    bench = Bench(tmp_path / "engine.sock", os.geteuid() + 1)
    with pytest.raises(AccessError, match="may ask, you are"):
        bench.hand_over(engine.pid)
    bench.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_a_process_of_somebody_else_is_refused(bench: Bench) -> None:
    with busy_child("import os, time; os.setuid(12345); print(flush=True); time.sleep(300)") as other:
        eventually(lambda: "\nUid:\t12345" in Path(f"/proc/{other.pid}/status").read_text())
        with pytest.raises(AccessError, match="is not yours"):
            bench.hand_over(other.pid)


def test_a_process_outside_the_callers_cgroup_is_refused(
    bench: Bench, engine: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_watch, "cgroup_of", lambda pid: "0::/system.slice/other.service")
    with pytest.raises(AccessError, match="not in your cgroup"):
        bench.hand_over(engine.pid)


@pytest.mark.parametrize("message", [b"hello", b"watch", b"", b"watch" * 100])
def test_a_message_without_a_pidfd_is_refused(bench: Bench, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(str(bench.path))
        line.send(message)
        line.settimeout(0.01)

        def answer() -> bytes:
            bench.serve()
            try:
                return line.recv(200)
            except TimeoutError:
                return b""

        assert eventually(answer).startswith(b"refused: ")


def test_a_descriptor_that_is_no_pidfd_is_refused(bench: Bench) -> None:
    class Pipe:
        def fileno(self) -> int:
            return 0

    with ThreadPoolExecutor(1) as caller:
        call = caller.submit(hand_over, bench.path, Pipe(), deadline_s=20)  # type: ignore[arg-type]
        eventually(lambda: bench.serve() or call.done())
        with pytest.raises(AccessError, match="no pidfd"):
            call.result()


def test_callers_that_only_connect_or_leave_do_no_harm(bench: Bench, engine: Busy) -> None:
    lines = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(20)]
    for line in lines:
        line.setblocking(False)
        try:
            line.connect(str(bench.path))
        except BlockingIOError:
            bench.serve()
    for line in lines:
        line.close()
    bench.hand_over(engine.pid)
