from __future__ import annotations

import grp
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from optaned.cli.ctl.address import SYSTEM_SOCKET, Address, explain, find_address
from optaned.errors import AccessError, UnavailableError, UsageError


def test_the_command_line_comes_before_the_environment_and_both_before_the_defaults(tmp_path: Path) -> None:
    own = tmp_path / "optaned" / "optaned.sock"
    environ = {"OPTANED_HOST": "unix:///env.sock", "XDG_RUNTIME_DIR": str(tmp_path)}
    assert find_address("/arg.sock", environ) == Address(Path("/arg.sock"), "--host")
    assert find_address(None, environ) == Address(Path("/env.sock"), "OPTANED_HOST")
    del environ["OPTANED_HOST"]
    assert find_address(None, environ) == Address(SYSTEM_SOCKET, "the default")
    own.parent.mkdir()
    own.touch()
    assert find_address(None, environ) == Address(own, "a daemon that was started by hand")


@pytest.mark.parametrize("text", ["http://127.0.0.1:8080", "https://host", "unix://relative", "tcp://x"])
def test_other_kinds_of_address_are_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=f"--host: {text}"):
        find_address(text, {})


def test_a_daemon_in_a_folder_that_is_hidden_from_us_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `su` without `-`, XDG_RUNTIME_DIR is still that of somebody else."""

    def hidden(path: Path) -> bool:
        if path.is_relative_to(tmp_path):
            raise PermissionError(13, "Permission denied")
        return system_is_there

    monkeypatch.setattr(Path, "exists", hidden)
    for system_is_there in (True, False):
        found = find_address(None, {"XDG_RUNTIME_DIR": str(tmp_path)})
        assert found.path == (SYSTEM_SOCKET if system_is_there else tmp_path / "optaned" / "optaned.sock")


def test_a_missing_socket_and_a_deserted_one_say_how_to_start_the_daemon(ctl, tmp_path: Path) -> None:
    deserted = tmp_path / "deserted.sock"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(deserted))
    for path, what in ((tmp_path / "none.sock", "no such socket"), (deserted, "nobody listens")):
        found = ctl("status", env={"OPTANED_HOST": str(path)})
        assert (found.code, found.out) == (69, "")
        assert f"{path} (from OPTANED_HOST): {what}" in found.err
        assert "optaned serve" in found.err
        assert found.err.count("\n") == 1


def test_permission_denied_names_the_group_of_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    path.touch()
    group = grp.getgrnam("users") if os.geteuid() == 0 else grp.getgrgid(os.getgid())
    os.chown(path, -1, group.gr_gid)
    error = explain(Address(path, "the default"), PermissionError(13, "Permission denied"))
    assert isinstance(error, AccessError)
    assert f"sudo usermod -aG {group.gr_name} $USER, then log in again" in str(error)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of root's")
def test_nobody_is_told_to_join_the_group_root(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    path.touch()
    assert "usermod" not in str(explain(Address(path, "the default"), PermissionError()))


def test_any_other_fault_is_told_as_the_system_tells_it() -> None:
    error = explain(Address(Path("/x"), "--host"), OSError(104, "Connection reset by peer"))
    assert isinstance(error, UnavailableError)
    assert "/x (from --host): Connection reset by peer" in str(error)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every socket")
def test_a_socket_that_is_not_for_us_exits_77(ctl, daemon) -> None:
    daemon.path.chmod(0)
    found = ctl("status")
    assert found.code == 77
    assert "log in again" in found.err


def test_help_needs_neither_http_nor_any_verb() -> None:
    code = """
import sys
from optaned.cli.optanectl import group
group.main(["--help"], standalone_mode=False)
print(*{"h11", "json", "rich", "pydantic", "optaned.cli.ctl.run"} & set(sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == ""
    assert "tokenize" in found.stdout


def test_every_verb_that_help_names_can_be_used(ctl) -> None:
    for verb in ("run", "chat", "status", "models", "load", "unload", "slots", "tokenize"):
        found = ctl(verb, "--help")
        assert found.code == 0
        assert found.out.startswith(f"Usage: optanectl {verb}")


def test_an_unknown_verb_exits_64(ctl) -> None:
    found = ctl("frobnicate")
    assert found.code == 64
    assert found.err == "optanectl: no such command 'frobnicate'; see: optanectl --help\n"
