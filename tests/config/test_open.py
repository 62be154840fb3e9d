"""Where the configuration is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from optaned.config.open import discover_guard_plugins, find_config, usual_places
from optaned.config.schema import Config
from optaned.errors import MissingFileError


def test_a_named_file_wins_then_the_variable_then_the_usual_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"OPTANED_CONFIG": "/var/o.toml", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert find_config(Path("mine.toml"), environ) == Path("mine.toml")
    assert find_config(None, environ) == Path("/var/o.toml")
    del environ["OPTANED_CONFIG"]
    own = tmp_path / "config" / "optaned" / "optaned.toml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert find_config(None, environ) == own
    (tmp_path / "optaned.toml").touch()
    assert find_config(None, environ) == Path("optaned.toml")


def test_nothing_found_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("optaned.config.open.SYSTEM_FILE", tmp_path / "etc" / "optaned.toml")
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    with pytest.raises(MissingFileError) as caught:
        find_config(None, environ)
    assert all(str(place) in caught.value.lines[0] for place in usual_places(environ))


def test_a_guard_without_sensors_imports_no_plugin() -> None:
    host = discover_guard_plugins(Config(), file=Path("optaned.toml"))
    assert {record.status for record in host.records} <= {"disabled"}
