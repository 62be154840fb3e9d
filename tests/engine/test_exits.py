"""Why a child ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from optaned.engine.exits import describe_exit, oom_kill_count


@pytest.mark.parametrize(
    "returncode, words",
    [
        (3, "ended with exit code 3"),
        (0, "ended with exit code 0"),
        (-6, "aborted (SIGABRT)"),
        (-11, "crashed (SIGSEGV)"),
        (-9, "was killed by signal 9"),
        (-15, "was killed by signal 15"),
        (-200, "was killed by signal 200"),
    ],
)
def test_an_exit_status_is_told_as_it_is(returncode: int, words: str) -> None:
    assert describe_exit(returncode) == words


def test_a_kill_while_memory_ran_out_says_so() -> None:
    assert describe_exit(-9, oom_kills=1) == (
        "was killed by signal 9 (the kernel ran out of memory and killed processes)"
    )
    assert describe_exit(-6, oom_kills=1) == "aborted (SIGABRT)"


def test_oom_kills_are_read_from_vmstat(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 12\noom_kill 7\n")
    assert oom_kill_count(vmstat) == 7
    assert oom_kill_count(tmp_path / "missing") == 0
