"""The latch of a trip."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from optaned.guard.latch import Latch


def test_a_latch_survives_and_is_gone_when_its_file_is(tmp_path: Path) -> None:
    latch = Latch(tmp_path / "state")
    assert latch.reason is None
    latch.set("dimm2 at 82 °C")
    assert Latch(tmp_path / "state").reason == "dimm2 at 82 °C"
    latch.path.unlink()
    assert latch.reason is None


def test_an_empty_or_unreadable_latch_is_set(tmp_path: Path) -> None:
    latch = Latch(tmp_path)
    latch.path.touch()
    assert latch.reason == "unknown"
    latch.path.unlink()
    latch.path.mkdir()
    assert latch.reason is not None


def test_a_disk_that_refuses_costs_the_memory_not_the_trip(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("in the way")
    latch = Latch(tmp_path / "state")
    with caplog.at_level(logging.CRITICAL):
        latch.set("dimm2 at 82 °C")
    assert latch.reason == "dimm2 at 82 °C"
    assert "will forget this trip" in caplog.text
