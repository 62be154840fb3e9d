"""A real guard process on simulated DIMMs that a test heats by writing a file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from optaned.system.thermal_word import Silence, ThermalWord, WordReader
from optaned.testing.daemon import eventually

CONFIG = """
[sensors.dimms]
driver = "sim"
file = "{folder}/celsius"
[cooling.fans]
driver = "sim"
file = "{folder}/fan"
[thermal]
tick_s = 0.05
"""


@dataclass
class Oven:
    """A folder with a configuration, a temperature, a fan, and what the guard leaves behind."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "optaned.toml"

    @property
    def word_path(self) -> Path:
        return self.folder / "run/guard/thermal.word"

    @property
    def latch(self) -> Path:
        return self.folder / "state/guard/trip.latch"

    @property
    def fan(self) -> str:
        return (self.folder / "fan").read_text().strip()

    @property
    def log(self) -> str:
        return (self.folder / "stderr").read_text()

    def heat(self, celsius: object) -> None:
        fresh = self.folder / "celsius.new"
        fresh.write_text(str(celsius))
        fresh.replace(self.folder / "celsius")

    def start(self, *arguments: str, python: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            *python,
            "-m",
            "optaned.cli.optaned",
            "guard",
            "--config",
            str(self.config),
            *arguments,
        ]
        places = {"OPTANED_RUNTIME_DIR": f"{self.folder}/run", "OPTANED_STATE_DIR": f"{self.folder}/state"}
        with (self.folder / "stderr").open("wb") as log:
            process = subprocess.Popen(command, env={**os.environ, **places}, stderr=log, stdin=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def end(self) -> None:
        """Kill whatever a test has left running."""
        for process in self.started:
            process.kill()
            process.wait()

    def says(self) -> ThermalWord | Silence:
        reader = WordReader(self.word_path)
        said = reader.read()
        reader.close()
        return said

    def word(self) -> ThermalWord | None:
        said = self.says()
        return said if isinstance(said, ThermalWord) else None

    def level(self) -> str:
        word = self.word()
        return "SILENT" if word is None else word.level.name

    def wait_for(self, level: str) -> None:
        eventually(lambda: self.level() == level, what=f"{level}, not {self.says()}")


@pytest.fixture
def oven(tmp_path: Path) -> Iterator[Oven]:
    oven = Oven(tmp_path)
    oven.config.write_text(CONFIG.format(folder=tmp_path))
    oven.heat(45)
    yield oven
    oven.end()


@pytest.fixture
def guard(oven: Oven) -> subprocess.Popen[bytes]:
    process = oven.start()
    oven.wait_for("COOL")
    return process


@pytest.fixture
def notify_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[bytes]]]:
    """Stand in for systemd; the value returns what has been said since it was asked last."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        def hear() -> list[bytes]:
            heard = []
            while True:
                try:
                    heard.append(line.recv(500))
                except BlockingIOError:
                    return heard

        yield hear
