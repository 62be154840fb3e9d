"""The socket file: ours alone, never anybody else's."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from optaned.errors import AccessError, BusyError, ConfigError, MissingFileError
from optaned.server.bind import adopt, bind


@contextmanager
def umask(value: int) -> Iterator[None]:
    old = os.umask(value)
    try:
        yield
    finally:
        os.umask(old)


def dead_socket(path: Path) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    sock.close()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_the_mode_is_what_was_asked_under_any_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        listener = bind(tmp_path / "s")
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660
    listener.close()


def test_the_group_is_set_before_anybody_can_connect(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a file to another group")
    listener = bind(tmp_path / "s", group="daemon")
    assert (tmp_path / "s").stat().st_gid == __import__("grp").getgrnam("daemon").gr_gid
    listener.close()


def test_a_missing_group_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bind(tmp_path / "s", group="no-such-group").close()
    assert "groupadd no-such-group" in caplog.text


def test_a_stale_file_is_replaced(tmp_path: Path) -> None:
    dead_socket(tmp_path / "s")
    listener = bind(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
    listener.close()
    assert not (tmp_path / "s").exists()


def test_nothing_but_the_lock_is_left_behind(tmp_path: Path) -> None:
    listener = bind(tmp_path / "s")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "s.lock"]
    listener.close()
    listener.close()
    assert [p.name for p in tmp_path.iterdir()] == ["s.lock"]
    bind(tmp_path / "s").close()


def test_a_live_owner_is_named_and_kept(tmp_path: Path) -> None:
    listener = bind(tmp_path / "s")
    inode = (tmp_path / "s").stat().st_ino
    script = (
        "import sys, pathlib; from optaned.server.bind import bind; from optaned.errors import BusyError\n"
        "try: bind(pathlib.Path(sys.argv[1]))\n"
        "except BusyError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", script, tmp_path / "s"], capture_output=True, text=True, check=True)
    assert f"process {os.getpid()} serves here already" in told.stdout
    assert (tmp_path / "s").stat().st_ino == inode
    listener.close()


def test_a_live_server_of_another_kind_is_kept_too(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()
        with pytest.raises(BusyError, match=f"process {os.getpid()}"):
            bind(tmp_path / "s")
        assert (tmp_path / "s").is_socket()
    bind(tmp_path / "s").close()


def test_a_file_that_is_no_socket_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("precious")
    with pytest.raises(ConfigError, match="is no socket"):
        bind(tmp_path / "s")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with pytest.raises(ConfigError, match="is no socket"):
        bind(tmp_path / "link")
    assert (tmp_path / "s").read_text() == "precious"


def test_a_successors_file_is_not_removed(tmp_path: Path) -> None:
    listener = bind(tmp_path / "s")
    (tmp_path / "s").unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(tmp_path / "s"))
        listener.close()
        assert (tmp_path / "s").is_socket()


def test_places_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such folder"):
        bind(tmp_path / "absent" / "s")
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        bind(tmp_path / ("x" * 120))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="anybody may replace"):
        bind(tmp_path / "open" / "s")


def test_a_folder_that_is_not_ours_is_an_access_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AccessError, match="run as the user who owns"):
        bind(tmp_path / "s")


def test_inherited_sockets_are_served_but_not_removed(tmp_path: Path) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(tmp_path / "s"))
    sock.listen()
    adopt([sock]).close()
    assert sock.fileno() == -1
    assert (tmp_path / "s").is_socket()
