"""A worker's environment: only an engine with block homes gets anything, and what cannot be had is refused when it must."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from optaned.engine import surroundings as module
from optaned.engine.messages import Open, Placement, Role
from optaned.engine.surroundings import surroundings
from optaned.errors import UnavailableError


@dataclass
class Machine:
    root: Path

    def with_memory(self, kibibytes: int) -> Machine:
        (self.root / "proc").mkdir()
        (self.root / "proc" / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:  {kibibytes} kB\n")
        return self


def opening(files: tuple[str, ...], homes: tuple[str, ...] | None, role: Role = Role.ENGINE) -> Open:
    placement = None
    if homes is not None:
        placement = Placement(
            digest="d",
            homes=homes,
            tiers=(),
            promotions=(),
            policy="static",
            policy_options={},
            move_gbps=1.0,
            heat_path=None,
        )
    return Open(
        role=role,
        backend="echo",
        options={},
        files=files,
        context=1,
        slots=1,
        threads=1,
        batch=1,
        kv_cache="f16",
        placement=placement,
    )


@pytest.fixture
def shards(tmp_path: Path) -> tuple[str, str]:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(bytes(4096))
    return str(tmp_path / "a"), str(tmp_path / "b")


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_files: object) -> dict[str, str]:
        raise UnavailableError("the native parts were not built")

    monkeypatch.setattr(module, "environment", refuse)


def test_a_model_read_in_place_needs_nothing(shards: tuple[str, str]) -> None:
    assert surroundings(opening(shards, ("byte", "byte"))) == {}
    assert surroundings(opening(shards, None)) == {}


def test_a_tokenizer_needs_nothing(shards: tuple[str, str]) -> None:
    assert surroundings(opening(shards, ("block", "block"), Role.TOKENIZER)) == {}


def test_only_shards_on_block_homes_are_listed(shards: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "environment", lambda files: {"files": ",".join(map(str, files))})
    assert surroundings(opening(shards, ("byte", "block"))) == {"files": shards[1]}


@pytest.mark.usefixtures("unbuilt")
def test_without_the_library_a_model_that_fits_is_loaded_all_the_same(shards: tuple[str, str], tmp_path: Path) -> None:
    machine = Machine(tmp_path).with_memory(8)
    assert surroundings(opening(shards, ("block", "block")), sysroot=machine.root) == {}


@pytest.mark.usefixtures("unbuilt")
def test_without_the_library_a_larger_model_is_refused_with_the_reason(shards: tuple[str, str], tmp_path: Path) -> None:
    machine = Machine(tmp_path).with_memory(7)
    with pytest.raises(UnavailableError, match="the native parts were not built"):
        surroundings(opening(shards, ("block", "block")), sysroot=machine.root)
