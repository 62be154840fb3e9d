"""All brakes together, on real processes: a guard on simulated DIMMs, the server's threads, an engine with its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from optaned.server.guardian import Guardian, guard_command
from optaned.server.stopper import Stopper
from optaned.system.thermal_word import ThermalWord, WordReader
from optaned.testing.daemon import eventually
from optaned.testing.processes import Busy, busy_child

CONFIG = """
[sensors.dimms]
driver = "sim"
file = "{folder}/celsius"
[thermal]
tick_s = 0.05
"""
ENGINE = """
import os, pathlib
from optaned.engine.silence import SilenceStopper
os.nice(19)
SilenceStopper(pathlib.Path({path!r})).start()
while True: pass
"""


@dataclass
class House:
    """A guard that is looked after, an engine, and a temperature that a test sets."""

    folder: Path
    guardian: Guardian
    stopper: Stopper
    engine: Busy

    def heat(self, celsius: float) -> None:
        heat(self.folder, celsius)

    @property
    def speaker(self) -> int | None:
        reader = WordReader(word_path(self.folder))
        said = reader.read()
        reader.close()
        return said.writer_pid if isinstance(said, ThermalWord) else None


def heat(folder: Path, celsius: float) -> None:
    fresh = folder / "celsius.new"
    fresh.write_text(str(celsius))
    fresh.replace(folder / "celsius")


def word_path(folder: Path) -> Path:
    return folder / "run/guard/thermal.word"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setenv("OPTANED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("OPTANED_STATE_DIR", str(tmp_path / "state"))
    config = tmp_path / "optaned.toml"
    config.write_text(CONFIG.format(folder=tmp_path))
    heat(tmp_path, 45)
    path = word_path(tmp_path)
    guardian, stopper = Guardian(path, guard_command(config)), Stopper(path)
    guardian.start()
    stopper.start()
    with busy_child(ENGINE.format(path=str(path))) as engine:
        guardian.attach(engine.pid)
        stopper.attach(engine.pid)
        house = House(tmp_path, guardian, stopper, engine)
        eventually(lambda: house.speaker)
        eventually(engine.runs)
        yield house
        stopper.close()
    guardian.close()


def test_a_killed_guard_stops_the_engine_and_its_successor_lets_it_run(house: House) -> None:
    first, engine_pid = house.speaker, house.engine.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    # The successor may speak before the dead guard's word is two seconds old: then nothing had to stop.
    eventually(lambda: house.speaker not in (None, first))
    eventually(house.engine.runs)
    assert house.engine.pid == engine_pid
    assert house.guardian.deaths == 1


def test_a_guard_that_stands_still_stops_the_engine_until_it_is_replaced(house: House) -> None:
    first = house.speaker
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    eventually(house.engine.stands_still)
    assert house.stopper.view.paused
    eventually(lambda: house.speaker not in (None, first))
    eventually(house.engine.runs)
    assert not house.stopper.view.paused


def test_without_any_guard_the_engine_stands_still_until_there_is_one(house: House, tmp_path: Path) -> None:
    house.guardian.close()
    eventually(house.engine.stands_still)
    assert house.stopper.view.level is None
    successor = Guardian(word_path(tmp_path), guard_command(tmp_path / "optaned.toml"))
    successor.start()
    eventually(house.engine.runs)
    successor.close()
    eventually(house.engine.stands_still)


def test_heat_stops_the_engine_and_cold_lets_it_run(house: House) -> None:
    house.heat(77)
    eventually(house.engine.stands_still)
    assert "at 77 °C" in house.stopper.view.reason
    house.heat(45)
    eventually(house.engine.runs)


def test_without_the_servers_thread_the_engine_stops_itself_on_heat(house: House) -> None:
    house.stopper.close()
    house.heat(77)
    eventually(house.engine.stands_still)


def test_without_the_servers_thread_the_engine_stops_itself_on_silence(house: House) -> None:
    house.stopper.close()
    house.guardian.close()
    eventually(house.engine.stands_still)


def test_a_guard_knows_the_engine_of_its_predecessor(house: House) -> None:
    first = house.speaker
    assert first is not None
    os.kill(first, signal.SIGKILL)
    second = eventually(lambda: house.speaker != first and house.speaker)
    # A pidfd among the guard's descriptors is the engine that it may stop.
    opened = Path(f"/proc/{second}/fd")
    eventually(lambda: any("pidfd" in str(link.readlink()) for link in opened.iterdir()))
