"""Supervising a guard by hand, with a small guard that only speaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from optaned.domain.thermal import Level
from optaned.server.guardian import Guardian, guard_command
from optaned.system.boottime import boottime_s
from optaned.system.thermal_word import ThermalWord, WordReader, WordWriter
from optaned.testing.daemon import eventually

SPEAKER = """
import os, pathlib, signal, sys, time
from optaned.domain.thermal import Level
from optaned.system.boottime import boottime_s
from optaned.system.parent import die_with_parent
from optaned.system.thermal_word import ThermalWord, WordWriter
_, path, _, parent = sys.argv[1:]
die_with_parent(int(parent), deadly=signal.SIGTERM)
writer = WordWriter(pathlib.Path(path))
while True:
    now = boottime_s()
    writer.write(ThermalWord(Level.COOL, 1.0, "fine", now, now + 0.5, writer_pid=os.getpid()))
    time.sleep(0.02)
"""
COMMAND = (sys.executable, "-c", SPEAKER)

SERVER = f"""
import pathlib, sys, time
from optaned.server.guardian import Guardian
Guardian(pathlib.Path(sys.argv[1]), (sys.executable, "-c", {SPEAKER!r})).start()
time.sleep(300)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "thermal.word"


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def guardian(path: Path, failures: list[str]) -> Iterator[Guardian]:
    guardian = Guardian(path, COMMAND, stale_after_s=0.2, poll_s=0.02, fail_safe=failures.append)
    yield guardian
    guardian.close()


def speaker(path: Path) -> int | None:
    """Return the pid of whoever says the present word."""
    reader = WordReader(path)
    said = reader.read()
    reader.close()
    return said.writer_pid if isinstance(said, ThermalWord) else None


def is_gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


def test_silence_makes_it_start_a_guard(guardian: Guardian, path: Path) -> None:
    guardian.start()
    assert eventually(lambda: speaker(path)) == guardian.guard_pid


def test_where_a_guard_speaks_it_starts_none(guardian: Guardian, path: Path) -> None:
    now_s = boottime_s()
    other = WordWriter(path)
    other.write(ThermalWord(Level.COOL, 1.0, "", now_s, now_s + 600, writer_pid=1))
    assert [guardian.look().value for _ in range(3)] == ["wait"] * 3
    assert guardian.guard_pid is None
    other.close()


def test_a_killed_guard_is_replaced_and_the_fail_safe_has_run(
    guardian: Guardian, path: Path, failures: list[str]
) -> None:
    guardian.start()
    first = eventually(lambda: speaker(path))
    os.kill(first, signal.SIGKILL)
    second = eventually(lambda: (pid := speaker(path)) != first and pid)
    assert second == guardian.guard_pid
    assert guardian.deaths == 1
    assert f"(pid {first}) ended with status -9" in failures[0]


def test_a_guard_that_stands_still_is_killed_and_replaced(guardian: Guardian, path: Path, failures: list[str]) -> None:
    guardian.start()
    first = eventually(lambda: speaker(path))
    os.kill(first, signal.SIGSTOP)
    eventually(lambda: (pid := speaker(path)) != first and pid)
    assert is_gone(first)
    assert len(failures) == 1


def test_closing_ends_the_guard(guardian: Guardian, path: Path) -> None:
    guardian.start()
    pid = eventually(lambda: speaker(path))
    guardian.close()
    assert is_gone(pid)


def test_closing_ends_a_guard_that_stands_still_too(guardian: Guardian, path: Path) -> None:
    guardian.start()
    pid = eventually(lambda: speaker(path))
    os.kill(pid, signal.SIGSTOP)
    guardian.close()
    assert is_gone(pid)


def test_the_guard_goes_with_a_server_that_is_killed(path: Path) -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(path)])
    pid = eventually(lambda: speaker(path))
    server.kill()
    server.wait()
    eventually(lambda: is_gone(pid))


def test_a_guard_that_cannot_start_is_tried_again_with_patience(path: Path, failures: list[str]) -> None:
    guardian = Guardian(path, ("/no/such/program",), poll_s=0.01)
    guardian.start()
    eventually(lambda: guardian.deaths >= 2)
    guardian.close()
    refused = Guardian(path, (sys.executable, "-c", "raise SystemExit(78)"), poll_s=0.01, fail_safe=failures.append)
    refused.start()
    eventually(lambda: failures)
    refused.close()
    assert "status 78" in failures[0]


def test_a_service_starts_no_guard(path: Path) -> None:
    guardian = Guardian(path, None, poll_s=0.01)
    assert guardian.look().value == "start"
    assert guardian.guard_pid is None
    guardian.close()


def test_the_real_guards_command_names_the_configuration() -> None:
    assert guard_command(Path("/etc/o.toml"))[-3:] == ("guard", "--config", "/etc/o.toml")
