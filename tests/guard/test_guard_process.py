"""The guard as it runs: what it says, what it leaves behind, what it imports, how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from optaned.system.handover import hand_over
from optaned.system.paths import engine_socket_path
from optaned.system.pidfd import Pidfd
from optaned.testing.daemon import eventually
from optaned.testing.processes import busy_child

Oven = Any  # the fixture of conftest.py, which is no module that can be imported
Guard = subprocess.Popen[bytes]

FORBIDDEN = re.compile(
    r"\b(starlette|uvicorn|llama_cpp|optaned_\w+|optaned\.(server|engine|pipeline|jobs|residency)\b\S*|jinja2|gguf)"
)


def test_levels_follow_the_temperature_and_are_logged_on_the_edge(oven: Oven, guard: Guard) -> None:
    for celsius, level in ((65, "WARM"), (77, "CRITICAL"), (45, "COOL"), ("broken", "HOT"), (45, "COOL")):
        oven.heat(celsius)
        oven.wait_for(level)
    assert oven.log.count("WARM -> CRITICAL") == 1
    assert "dimms dimm0 at 77 °C, 8 °C below its limit" in oven.log


def test_fans_follow_and_are_left_at_full(oven: Oven, guard: Guard) -> None:
    eventually(lambda: oven.fan == "0.0000")
    oven.heat(77)
    eventually(lambda: oven.fan == "1.0000")
    oven.heat(45)
    eventually(lambda: oven.fan == "0.0000")
    guard.terminate()
    assert guard.wait(20) == 0
    assert oven.fan == "1.0000"


def test_sigterm_ends_it_with_success_and_silence_at_once(oven: Oven, guard: Guard) -> None:
    word = oven.word()
    guard.terminate()
    assert guard.wait(20) == 0
    assert oven.level() == "SILENT"
    assert word is not None
    assert not engine_socket_path(oven.word_path).exists()


def test_a_killed_guard_is_silence(oven: Oven, guard: Guard) -> None:
    guard.kill()
    oven.wait_for("SILENT")


def test_a_trip_is_latched_over_a_restart_until_the_latch_is_removed(oven: Oven, guard: Guard) -> None:
    oven.heat(83)
    oven.wait_for("TRIP")
    assert "at 83 °C" in oven.latch.read_text()
    oven.heat(45)
    guard.kill()
    guard.wait()
    oven.wait_for("SILENT")
    again = oven.start()
    oven.wait_for("TRIP")
    assert str(oven.latch) in oven.word().reason
    oven.latch.unlink()
    oven.wait_for("COOL")
    again.terminate()
    assert again.wait(20) == 0


def test_it_stops_an_engine_that_nobody_else_stops(oven: Oven, guard: Guard) -> None:
    with busy_child() as engine:
        held = Pidfd.open(engine.pid)
        hand_over(engine_socket_path(oven.word_path), held)
        held.close()
        oven.heat(77)
        eventually(engine.stands_still)
        oven.heat(45)
        oven.wait_for("COOL")
        assert engine.stands_still(), "only the server resumes"
    assert "still ran 0.1 s after CRITICAL" in oven.log


def test_a_second_guard_is_refused(oven: Oven, guard: Guard) -> None:
    log = oven.log
    second = oven.start()
    assert second.wait(20) == 75
    assert "another guard" in oven.log
    assert "another guard" not in log


def test_a_configuration_that_cannot_be_used_is_told(oven: Oven) -> None:
    oven.config.write_text('[sensors.dimms]\ndriver = "sim"\nfile = "relative"\n')
    assert oven.start().wait(20) == 78
    assert "sensors.dimms.file" in oven.log


def test_without_its_parent_it_does_not_begin(oven: Oven) -> None:
    assert oven.start("--parent", str(2**22 + 1)).wait(20) == 69
    assert "is gone" in oven.log


def test_an_unknown_service_account_is_told(oven: Oven) -> None:
    assert oven.start("--service-user", "no-such-account").wait(20) == 64


def test_it_imports_neither_the_api_nor_a_backend(oven: Oven) -> None:
    process = oven.start(python=("-X", "importtime"))
    oven.wait_for("COOL")
    process.terminate()
    assert process.wait(20) == 0
    imported = [line.rpartition("|")[2].strip() for line in oven.log.splitlines() if line.startswith("import time:")]
    assert "optaned.guard.loop" in imported
    strangers = {name for name in imported if FORBIDDEN.match(name)} - {
        "optaned_sim",
        "optaned_sim.sensor",
        "optaned_sim.cooler",
    }
    assert not strangers


def test_it_feeds_systemds_watchdog_and_says_ready_once(oven: Oven, notify_socket: Callable[[], list[bytes]]) -> None:
    process = oven.start()
    said: list[bytes] = []
    eventually(lambda: said.extend(notify_socket()) or said.count(b"WATCHDOG=1") > 3)
    assert said[0].startswith(b"READY=1\nSTATUS=COOL: dimms dimm0 at 45 C")
    assert sum(message.startswith(b"READY=1") for message in said) == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert b"STOPPING=1" in notify_socket()


def test_it_leaves_the_words_file_for_the_next(oven: Oven, guard: Guard) -> None:
    inode = oven.word_path.stat().st_ino
    guard.kill()
    guard.wait()
    again = oven.start()
    eventually(lambda: (word := oven.word()) is not None and word.writer_pid == again.pid)
    assert oven.word_path.stat().st_ino == inode
