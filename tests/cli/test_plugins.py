"""`optaned plugins` works whatever is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optaned.cli.optaned import optaned, run_command


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OPTANED_CONFIG", raising=False)


def test_first_party_plugins_are_listed_with_what_they_offer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(optaned, ["plugins", "--json"]) == 0
    records = {(r["group"], r["name"]): r for r in json.loads(capsys.readouterr().out)}
    assert records["optaned", "memory"]["drivers"] == ["tiers/memory", "tiers/memory-mode"]
    assert records["optaned.guard", "sim"]["status"] == "loaded"
    assert {r["status"] for r in records.values()} == {"loaded"}


def test_a_broken_plugin_is_shown_with_its_reason_and_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o755)
    (folder / "attic.py").write_text("import no_such_library")
    (folder / "twin.py").write_text(
        "from optaned.api import Driver, Options, hookimpl\nOPTANED_API = (1, 0)\n"
        "@hookimpl\ndef optaned_tiers(): return [Driver('memory', Options, print)]\n"
    )
    (tmp_path / "o.toml").write_text('[engine]\nslots = 0\n[plugins]\npath = "plugins"\ndisable = ["echo"]\n')
    assert run_command(optaned, ["plugins", "--config", "o.toml"]) == 0
    out, err = capsys.readouterr()
    assert "import failed: ModuleNotFoundError: No module named 'no_such_library'" in out
    assert "disabled: [plugins] disable names it" in out
    assert "tier driver 'memory' is offered by memory (optaned" in err


def test_an_unreadable_default_configuration_is_a_warning_and_a_named_one_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "optaned.toml").write_text("= 1")
    assert run_command(optaned, ["plugins"]) == 0
    assert "warning: optaned.toml: line 1, column 1: not valid TOML" in capsys.readouterr().err
    assert run_command(optaned, ["plugins", "--config", "optaned.toml"]) == 78
