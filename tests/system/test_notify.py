"""What is said to systemd, on a socket of our own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from optaned.system.notify import Notifier


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield line


def test_a_service_says_ready_with_a_status_of_one_plain_line(systemd: socket.socket) -> None:
    notifier = Notifier()
    notifier.ready("HOT: dimm 2\nat 79 °C → slow")
    assert systemd.recv(200) == b"READY=1\nSTATUS=HOT: dimm 2 at 79 C -> slow"
    notifier.close()


def test_the_watchdog_is_fed_alone(systemd: socket.socket) -> None:
    notifier = Notifier()
    notifier.alive()
    assert systemd.recv(200) == b"WATCHDOG=1"
    notifier.close()


def test_stopping_and_more_time_are_said(systemd: socket.socket) -> None:
    notifier = Notifier()
    notifier.extend_timeout(2.5)
    notifier.stopping()
    notifier.status("")
    assert [systemd.recv(200) for _ in range(3)] == [b"EXTEND_TIMEOUT_USEC=2500000", b"STOPPING=1", b"STATUS="]
    notifier.close()


def test_without_systemd_nothing_is_said_and_nothing_fails() -> None:
    notifier = Notifier({})
    notifier.ready("fine")
    notifier.alive()
    notifier.close()
    assert not notifier.is_connected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "5000000"}, 5.0),
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": str(os.getpid())}, 5.0),
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdogs_interval_is_read_when_it_is_ours(environ: dict[str, str], expected: float | None) -> None:
    assert Notifier(environ).watchdog_s == expected
