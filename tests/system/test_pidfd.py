"""Processes by descriptor."""

from __future__ import annotations

import os
import signal

import pytest

from optaned.system.pidfd import Pidfd, process_stat
from optaned.testing.daemon import eventually
from optaned.testing.processes import busy_child


def test_a_stopped_process_is_seen_to_stand_still_and_goes_on_when_told() -> None:
    with busy_child() as child:
        held = Pidfd.open(child.pid)
        held.send(signal.SIGSTOP)
        eventually(child.stands_still)
        assert held.stat is not None
        assert held.stat.is_stopped
        held.send(signal.SIGCONT)
        eventually(child.runs)
        held.close()


def test_a_dead_process_is_dead_even_before_it_is_reaped() -> None:
    with busy_child() as child:
        held = Pidfd.open(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        eventually(lambda: not held.is_alive)
        assert held.stat is None
        assert held.uid is None
        assert held.cgroup is None
        child.process.wait()
        assert held.send(signal.SIGSTOP) is False
        held.close()


def test_a_living_process_has_an_owner_and_a_cgroup() -> None:
    held = Pidfd.open(os.getpid())
    assert held.uid == os.geteuid()
    assert held.cgroup
    copy = held.duplicate()
    held.close()
    assert copy.pid == os.getpid()
    copy.close()


def test_a_closed_descriptor_signals_nobody() -> None:
    held = Pidfd.open(os.getpid())
    held.close()
    held.close()
    assert held.send(signal.SIGKILL) is False
    assert not held.is_alive


def test_a_name_with_spaces_and_parentheses_does_not_confuse() -> None:
    code = "import ctypes, time\nctypes.CDLL(None).prctl(15, b') S (x')\nwhile True: time.sleep(1)"
    with busy_child(code) as child:
        eventually(lambda: (stat := process_stat(child.pid)) is not None and stat.state == "S")


def test_no_process_is_no_stat() -> None:
    with pytest.raises(ProcessLookupError):
        Pidfd.open(2**22 + 1)
    assert process_stat(2**22 + 1) is None


def test_another_descriptor_is_refused_and_closed() -> None:
    read, write = os.pipe()
    with pytest.raises(ValueError, match="no pidfd"):
        Pidfd(read)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
    os.close(write)
