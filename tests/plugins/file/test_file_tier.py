"""The tier `file` is a folder with room, or an error that names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from optaned.api import Env, MissingFileError, TierKind
from optaned_file import FileOptions, FileTier, optaned_tiers


def test_it_has_the_file_systems_size_and_room(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    found = FileTier("nvme0", FileOptions(mount="/mnt", read_gbps=7), Env(sysroot=tmp_path)).probe()
    room = os.statvfs(tmp_path)
    assert found.capacity_bytes == room.f_blocks * room.f_frsize
    assert 0 <= found.free_bytes <= found.capacity_bytes
    assert (found.name, found.kind, found.read_gbps) == ("nvme0", TierKind.BLOCK, 7.0)
    assert found.holds(tmp_path / "mnt" / "model.gguf")


def test_links_to_the_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "mnt").symlink_to(tmp_path / "disk")
    found = FileTier("nvme0", FileOptions(mount="/mnt"), Env(sysroot=tmp_path)).probe()
    assert found.mount == tmp_path / "disk"


def test_a_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"/mnt/gone: no such folder; mount it"):
        FileTier("nvme0", FileOptions(mount="/mnt/gone"), Env(sysroot=tmp_path)).probe()


def test_options_are_strict() -> None:
    for wrong in ({"mount": "/x", "read_gbps": 0}, {"mount": "/x", "reed_gbps": 1}, {}):
        with pytest.raises(ValidationError):
            FileOptions(**wrong)


def test_it_is_declared_under_its_name() -> None:
    (driver,) = optaned_tiers()
    tier = driver.open("t", FileOptions(mount="/"), Env())
    assert (driver.name, tier.probe().name) == ("file", "t")
    tier.close()
