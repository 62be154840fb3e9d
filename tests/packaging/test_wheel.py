"""A wheel in a fresh environment without the model library: what can work without it works."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = {
    "chat",
    "device",
    "echo",
    "file",
    "fsdax",
    "heat",
    "home",
    "llamacpp",
    "memory",
    "package",
    "sim",
    "static",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` of an environment with the wheel, built from a copy of what a checkout holds."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for part in ("optaned", "plugins"):
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source], check=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    (wheel,) = folder.glob("optaned-*.whl")
    pip[0] = str(folder / "venv" / "bin" / "python")
    subprocess.run([*pip, "install", "--quiet", wheel], check=True)
    return folder / "venv" / "bin"


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Run:
    """Return a function that runs a program of that environment, away from the checkout."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPTANED", "XDG", "VIRTUAL_ENV"))}
    clean |= {"OPTANED_RUNTIME_DIR": str(tmp_path / "run"), "OPTANED_STATE_DIR": str(tmp_path / "state")}

    def go(*command: object) -> subprocess.CompletedProcess[str]:
        words = [str(environment / str(command[0])), *map(str, command[1:])]
        return subprocess.run(words, env=clean, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    go.environment = clean  # type: ignore[attr-defined]
    return go


@pytest.fixture
def daemon(run: Run, environment: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Serve the echo example and stop it again."""
    command = [environment / "optaned", "serve", "--config", ROOT / "etc/examples/laptop-echo.toml"]
    process = subprocess.Popen(command, env=run.environment, cwd=tmp_path)  # type: ignore[attr-defined]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_library_is_not_there_and_nothing_of_the_tests_is(run: Run) -> None:
    code = "import importlib.util as u; print([n for n in ('llama_cpp', 'tests', 'bench') if u.find_spec(n)])"
    assert run("python", "-c", code).stdout == "[]\n"


def test_check_and_plugins_work(run: Run) -> None:
    done = run("optaned", "check", ROOT / "etc/examples/laptop-echo.toml")
    assert (done.returncode, done.stderr) == (0, "")
    records = json.loads(run("optaned", "plugins", "--json").stdout)
    assert {r["name"]: r["status"] for r in records} == dict.fromkeys(PLUGINS, "loaded")


def test_what_needs_the_extra_names_it(run: Run) -> None:
    done = run("optaned", "check", ROOT / "etc/examples/demo.toml")
    assert done.returncode == 78
    assert 'pip install "optaned[demo]"' in done.stderr


def test_the_echo_backend_answers_over_the_socket(run: Run, daemon: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while run("optanectl", "status").returncode == 69 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert run("optanectl", "status", "--wait", "--timeout", "30").returncode == 0
    done = run("optanectl", "run", "hello there")
    assert (done.returncode, done.stdout) == (0, "hello there\n")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(10) == 0
