"""Saved heat is whole or the old one, never written more often than need be, and never another model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optaned.errors import AccessError, ConfigError, UnavailableError
from optaned.placement.heat import Heat
from optaned.residency.heat_file import HeatFlusher, heat_path, read_heat, write_heat

HEAT = Heat.cold(4).observe([1, 0, 2, 0], 3)


def test_each_model_and_profile_has_a_file_of_its_own(tmp_path: Path) -> None:
    path = heat_path(tmp_path, "a" * 32, "night-1.b_c")
    assert path == tmp_path / "heat" / ("a" * 32) / "night-1.b_c.heat"
    for bad in ("", "../x", "a/b", ".hidden", "x" * 65, "a b"):
        with pytest.raises(ConfigError, match=r"^placement\.profile: .* is no name for a profile"):
            heat_path(tmp_path, "a", bad)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = heat_path(tmp_path, "d", "default")
    assert read_heat(path, digest="d", experts=4) is None
    write_heat(path, HEAT, digest="d")
    back = read_heat(path, digest="d", experts=4)
    assert back is not None
    np.testing.assert_array_equal(back.weight, HEAT.weight)
    assert list(path.parent.iterdir()) == [path]


def test_another_models_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "p.heat"
    write_heat(path, HEAT, digest="mine")
    with pytest.raises(ConfigError, match=rf"^{path}: belongs to the model with digest mine .* not to other"):
        read_heat(path, digest="other", experts=4)


def test_a_damaged_and_an_unreadable_file_are_told_with_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "p.heat"
    path.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match=rf"^{path}: is no heat profile; remove it"):
        read_heat(path, digest="d", experts=4)
    with pytest.raises(AccessError, match=rf"^{tmp_path}: cannot be read: is a directory"):
        read_heat(tmp_path, digest="d", experts=4)


def test_a_write_that_fails_leaves_the_old_heat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.heat"
    write_heat(path, HEAT, digest="d")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("optaned.residency.heat_file.os.fsync", full)
    with pytest.raises(UnavailableError, match="heat cannot be saved: no space left on device; it is kept in memory"):
        write_heat(path, HEAT.observe([9, 9, 9, 9], 9), digest="d")
    monkeypatch.undo()
    back = read_heat(path, digest="d", experts=4)
    assert back is not None
    assert back.tokens == HEAT.tokens
    assert list(tmp_path.iterdir()) == [path]


def test_heat_is_flushed_once_an_interval_and_only_when_it_changed(tmp_path: Path) -> None:
    flusher = HeatFlusher(tmp_path / "p.heat", digest="d", now_s=100.0, interval_s=30.0)
    assert not flusher.due(129.9)
    assert flusher.due(130.0)
    assert flusher.flush(HEAT, 130.0)
    assert not flusher.due(159.0)
    assert not flusher.flush(HEAT, 160.0)
    assert flusher.flush(HEAT.observe([1, 0, 0, 0], 1), 190.0)
    back = read_heat(tmp_path / "p.heat", digest="d", experts=4)
    assert back is not None
    assert back.tokens == 4
