"""`optaned check` tells all faults at once, and what is in effect."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from optaned.cli.optaned import optaned, run_command

GOOD = '[models.m]\n[engine]\nbackend = "echo"\nslots = 2\n[tiers.d]\ndriver = "memory"\n[jobs]\nwidth = 2\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "o.toml").write_text(GOOD)
    return tmp_path / "o.toml"


def test_a_sound_file_is_ok_with_a_summary_and_warnings(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(optaned, ["check", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{file}: ok, model m on echo; tiers: d (memory); sensors: none\n"
    assert err == f"warning: {file}: jobs.width: has no effect yet\n"


def test_faults_are_all_told_with_78(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('[models.m]\nfiles = ["gone.gguf"]\n[engine]\nslots = 0\n[tiers.d]\ndriver = "memroy"\n')
    assert run_command(optaned, ["check", "--config", str(file)]) == 78
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["engine.slots", "models.m.files[0]", "tiers.d.driver"]


def test_a_backend_that_reads_weights_wants_files(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[models.m]\n")
    assert run_command(optaned, ["check", str(file)]) == 78
    assert capsys.readouterr().err == f"{file}: models.m: names no files; add files = […] or ref = …\n"


def test_show_prints_toml_that_means_the_same(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(optaned, ["check", "--show", str(file)]) == 0
    out = capsys.readouterr().out
    shown = tomllib.loads(out)
    assert (shown["engine"]["slots"], shown["engine"]["batch"]) == (2, 512)
    assert "slots = 2                                 # file\n" in out
    file.write_text(out)
    assert run_command(optaned, ["check", str(file)]) == 0


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(optaned, ["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["tiers"]


def test_a_missing_file_and_two_files_are_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(optaned, ["check", "gone.toml"]) == 66
    assert run_command(optaned, ["check", str(file), "--config", str(file)]) == 64
    assert capsys.readouterr().err.splitlines() == [
        "gone.toml: no such file",
        "optaned check: name the file once, as an argument or with --config",
    ]
