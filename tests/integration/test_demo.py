"""`optaned demo` shows an answer, its speed and the guard's level, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from optaned.testing.daemon import eventually

SLOW = "[engine.echo]\ntoken_delay_s = 0.5\n"


def _demo(folder: Path, *, engine: str = "") -> subprocess.Popen[str]:
    config = folder / "echo.toml"
    config.write_text(f'[models.echo]\n[engine]\nbackend = "echo"\n{engine}[sensors.dimms]\ndriver = "sim"\n')
    temporary = folder / "tmp"
    temporary.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "optaned.cli.optaned", "demo", "--config", str(config), "--prompt", "What is the sea?"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_it_shows_the_answer_its_speed_and_the_level(tmp_path: Path) -> None:
    told, _ = (demo := _demo(tmp_path)).communicate(timeout=60)
    assert demo.returncode == 0, told
    lines = told.splitlines()
    asked = lines.index("> What is the sea?")
    assert lines[asked + 1] == "What is the sea?"
    assert not [line for line in lines[:asked] if "model" not in line], "no figures before there is anything to count"
    assert "tokens/s" in told
    assert "COOL, duty 100%" in told
    assert lines[-1] == "the daemon ended with exit code 0"
    assert not list((tmp_path / "tmp").iterdir())


def test_ended_from_outside_it_takes_its_daemon_along(tmp_path: Path) -> None:
    demo = _demo(tmp_path, engine=SLOW)
    runtime = tmp_path / "tmp"
    (socket,) = eventually(lambda: list(runtime.glob("optaned-demo-*/optaned.sock")), what="the demo's daemon listens")
    pid = int(socket.with_name("optaned.sock.lock").read_text())
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=30)
    assert demo.returncode == 128 + signal.SIGTERM
    assert not Path(f"/proc/{pid}").exists()
    assert not list(runtime.iterdir())
