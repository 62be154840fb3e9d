"""Inherited sockets, as socket activation passes them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from optaned.system.listen import take_listen_sockets

CHILD = """
import os
from optaned.system.listen import take_listen_sockets
os.environ["LISTEN_PID"] = str(os.getpid())
first = int(os.environ.pop("FIRST_FD"))
for name, line in take_listen_sockets(first_fd=first).items():
    print(name, line.getsockname(), os.get_inheritable(line.fileno()))
    line.close()
print(sorted(name for name in os.environ if name.startswith("LISTEN")), take_listen_sockets())
"""


def test_named_sockets_are_taken_once_and_not_passed_on(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(tmp_path / "api.sock"))
        line.listen()
        environ = {**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "api", "FIRST_FD": str(line.fileno())}
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            env=environ,
            pass_fds=[line.fileno()],
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.splitlines() == [f"api {tmp_path}/api.sock False", "[] {}"]


def test_sockets_of_another_process_are_left_and_the_variables_go() -> None:
    environ = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "HOME": "/"}
    assert take_listen_sockets(environ) == {}
    assert environ == {"HOME": "/"}


def test_no_variables_are_no_sockets() -> None:
    assert take_listen_sockets({}) == {}
    assert take_listen_sockets({"LISTEN_FDS": "many", "LISTEN_PID": str(os.getpid())}) == {}
