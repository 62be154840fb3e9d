"""The engine's own brake, alone: nobody else stops the process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from optaned.domain.thermal import Level
from optaned.engine.silence import SilenceStopper, stop_reason
from optaned.system.boottime import boottime_s
from optaned.system.thermal_word import Silence, ThermalWord, WordWriter
from optaned.testing.daemon import eventually
from optaned.testing.processes import Busy, busy_child

ENGINE = """
import os, pathlib, sys
from optaned.engine.silence import SilenceStopper
os.nice(19)
SilenceStopper(pathlib.Path({path!r})).start()
while True: pass
"""


def word(level: Level = Level.COOL, *, valid_s: float = 600.0) -> ThermalWord:
    now_s = boottime_s()
    return ThermalWord(level, 1.0 if level < Level.CRITICAL else 0.0, "as told", now_s, now_s + valid_s)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "thermal.word"


@pytest.fixture
def guard(path: Path) -> Iterator[WordWriter]:
    writer = WordWriter(path)
    writer.write(word())
    yield writer
    writer.close()


@pytest.fixture
def engine(guard: WordWriter, path: Path) -> Iterator[Busy]:
    with busy_child(ENGINE.format(path=str(path))) as engine:
        eventually(lambda: len(list(Path(f"/proc/{engine.pid}/task").iterdir())) > 1)
        yield engine


def test_a_fresh_word_lets_it_run_and_critical_stops_it(engine: Busy, guard: WordWriter) -> None:
    assert engine.runs()
    guard.write(word(Level.CRITICAL))
    eventually(engine.stands_still)


def test_silence_stops_it(engine: Busy, guard: WordWriter) -> None:
    guard.write(word(valid_s=0.1))
    eventually(engine.stands_still)


def test_it_stops_again_when_it_is_resumed_too_early_and_runs_when_it_may(engine: Busy, guard: WordWriter) -> None:
    guard.write(word(Level.CRITICAL))
    eventually(engine.stands_still)
    engine.resume()
    eventually(engine.stands_still)
    guard.write(word(Level.HOT))
    engine.resume()
    eventually(engine.runs)
    assert engine.state != "T"


def test_without_a_word_it_never_begins_to_run(path: Path) -> None:
    with busy_child(ENGINE.format(path=str(path))) as engine:
        eventually(engine.stands_still)


def test_what_stops_and_what_does_not() -> None:
    assert stop_reason(word(Level.HOT)) is None
    assert stop_reason(Silence("the guard is silent")) == "the guard is silent"
    assert stop_reason(replace(word(Level.TRIP), reason="82 °C")) == "TRIP: 82 °C"


def test_a_closed_brake_looks_no_more(path: Path) -> None:
    stops: list[str] = []
    brake = SilenceStopper(path, poll_s=0.001, stop=lambda: stops.append("stop"))
    brake.start()
    eventually(lambda: stops)
    brake.close()
    count = len(stops)
    brake_again = SilenceStopper(path, stop=lambda: stops.append("stop"))
    brake_again.look()
    brake_again.close()
    assert len(stops) == count + 1
