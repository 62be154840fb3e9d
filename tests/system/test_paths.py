"""Where things lie, for services, users and tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from optaned.system import paths

USER = {"XDG_RUNTIME_DIR": "/run/user/1000", "HOME": "/home/ada"}


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_a_users_daemon_lives_in_the_session(as_user: None) -> None:
    assert paths.socket_path(USER) == Path("/run/user/1000/optaned/optaned.sock")
    assert paths.hand_word_path(USER) == Path("/run/user/1000/optaned/guard/thermal.word")
    assert paths.state_dir(USER) == Path("/home/ada/.local/state/optaned")


def test_a_user_without_a_session_gets_a_directory_of_their_own(as_user: None) -> None:
    assert paths.runtime_dir({}).name == "optaned-1000"


def test_root_by_hand_lives_under_run(as_root: None) -> None:
    assert paths.socket_path({}) == Path("/run/optaned/optaned.sock")
    assert paths.state_dir({}) == Path("/var/lib/optaned")


def test_the_variables_move_everything(as_root: None) -> None:
    moved = {"OPTANED_RUNTIME_DIR": "/t/run", "OPTANED_STATE_DIR": "/t/state", "NOTIFY_SOCKET": "/n", **USER}
    assert paths.socket_path(moved) == Path("/t/run/optaned.sock")
    assert paths.state_dir(moved) == Path("/t/state")
    assert paths.guard_word_path(moved | {"RUNTIME_DIRECTORY": "/run/x"}) == Path("/t/run/guard/thermal.word")
    assert paths.word_path_to_obey(system_guard_lives=True, environ=moved) == Path("/t/run/guard/thermal.word")


def test_a_guard_unit_writes_into_its_own_directory() -> None:
    environ = {"RUNTIME_DIRECTORY": "/run/optaned-guard", "NOTIFY_SOCKET": "/n"}
    assert paths.guard_word_path(environ) == paths.SYSTEM_WORD


def test_a_service_obeys_the_system_guard_even_while_it_is_silent() -> None:
    environ = {"NOTIFY_SOCKET": "/run/systemd/notify"}
    assert paths.word_path_to_obey(system_guard_lives=False, environ=environ) == paths.SYSTEM_WORD


def test_by_hand_a_living_system_guard_comes_first(as_user: None) -> None:
    assert paths.word_path_to_obey(system_guard_lives=True, environ=USER) == paths.SYSTEM_WORD
    assert paths.word_path_to_obey(system_guard_lives=False, environ=USER) == paths.hand_word_path(USER)


def test_a_services_state_is_the_first_directory_of_its_unit() -> None:
    assert paths.state_dir({"STATE_DIRECTORY": "/var/lib/optaned:/var/lib/more"}) == Path("/var/lib/optaned")


def test_the_guards_socket_lies_beside_its_word() -> None:
    assert paths.engine_socket_path(Path("/run/g/thermal.word")) == Path("/run/g/engine.sock")
