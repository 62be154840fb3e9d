"""Programs run for a driver end by themselves or are ended, and what they said comes back."""

from __future__ import annotations

import pytest

from optaned.system.commands import run_command, runner


def test_status_and_output_come_back() -> None:
    done = run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 10)
    assert done == (3, "out\n", "err\n")


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert run_command(["printf", r"\377x"], 10).stdout == "\ufffdx"


def test_it_sees_no_environment_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    assert "SECRET" not in run_command(["env"], 10).stdout


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"sleep did not end within 0\.05 s"):
        run_command(["sleep", "600"], 0.05)


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(FileNotFoundError):
        run_command(["no-such-program-here"], 1)


def test_only_what_was_declared_may_run() -> None:
    run = runner(["true"])
    assert run(["true"], 10).returncode == 0
    with pytest.raises(PermissionError, match="did not declare the command 'false'"):
        run(["false"], 10)
