"""Every way out of `optaned` has a truthful exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from optaned.cli import plugin_verbs
from optaned.cli.optaned import optaned, run_command
from optaned.cli.verbs import VERBS, load_verb
from optaned.errors import AccessError, ConfigError


def ending(act: Callable[[], object]) -> int:
    return run_command(click.Command("verb", callback=act), [])


def test_an_expected_error_is_its_lines_and_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ConfigError("a.toml: x: wrong", "a.toml: y: wrong")

    assert ending(fail) == 78
    assert capsys.readouterr().err == "a.toml: x: wrong\na.toml: y: wrong\n"


def test_a_bug_is_a_traceback_and_70(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(lambda: {}["missing"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_other_ways_out() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def refuse() -> None:
        raise AccessError("join the group")

    assert ending(lambda: None) == 0
    assert ending(lambda: 3) == 3
    assert ending(interrupt) == 130
    assert ending(refuse) == 77


@pytest.mark.parametrize("arguments", [["--nonsense"], ["check", "--nonsense"], ["check", "a", "b"]])
def test_a_wrong_command_line_is_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(optaned, arguments) == 64
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("optaned")
    assert lines[0].endswith("--help")


def test_a_mistyped_verb_gets_the_likely_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(optaned, ["chekc"]) == 64
    assert capsys.readouterr().err == "optaned: no verb is named 'chekc' (did you mean 'check'?); see: optaned --help\n"


def test_a_reader_that_leaves_is_no_bug() -> None:
    command = f"{sys.executable} -m optaned.cli.optaned check --schema | true; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1, 141)  # click itself says 1
    assert ended.stderr == ""


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(optaned, ["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {verb} " in text for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_listed_verb_is_there(verb: str) -> None:
    command = load_verb(verb)
    assert isinstance(command, click.Command)
    assert command.name == verb


def test_a_verb_imports_no_other() -> None:
    code = (
        "import sys; from optaned.cli.optaned import run_command, optaned; run_command(optaned, ['check', '--schema'])"
    )
    code += "; sys.exit([m for m in sys.modules if m.startswith(('optaned.server', 'optaned.engine', 'starlette'))])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "[]\n")


def test_a_plugin_adds_a_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o755)
    (folder / "greet.py").write_text(
        "import click\n"
        "from optaned.api import Driver, Options, hookimpl\n"
        "OPTANED_API = (1, 0)\n"
        "@hookimpl\n"
        "def optaned_commands():\n"
        "    hello = click.Command('greet', callback=lambda: click.echo('hello'))\n"
        "    return [Driver('greet', Options, lambda name, options, env: hello, 'say hello'),\n"
        "            Driver('sulk', Options, lambda name, options, env: None)]\n"
    )
    (tmp_path / "optaned.toml").write_text('[plugins]\npath = "plugins"\n')
    environment = {**os.environ, "OPTANED_CONFIG": str(tmp_path / "optaned.toml")}
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "optaned.cli.optaned", verb],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for verb in ("greet", "--help", "sulk")
    ]
    assert outputs[0].stdout == "hello\n"
    assert "say hello" in outputs[1].stdout
    assert (outputs[2].returncode, outputs[2].stderr) == (
        78,
        "verb 'sulk' of a plugin is a NoneType, not a click.Command\n",
    )
    assert plugin_verbs.load_plugin_verb("greet") is None  # not of this process's configuration
