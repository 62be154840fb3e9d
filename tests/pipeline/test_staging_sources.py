"""Which shards are whole, which are still being fetched, and which have not begun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from optaned.errors import MissingFileError, ModelFileError, UsageError
from optaned.pipeline.staging.sources import find_sources
from optaned.testing.gguf import build_dense, build_split


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Path, ...]:
    return build_split(tmp_path / "m.gguf", shards=3, experts=8)


def test_a_folder_is_its_shards(shards: tuple[Path, ...]) -> None:
    (shards[0].parent / "readme.txt").write_text("no shard")
    found = find_sources([shards[0].parent])
    assert [source.path for source in found] == list(shards)
    assert all(source.header and not source.waits for source in found)


def test_one_shard_tells_of_those_that_are_missing(shards: tuple[Path, ...]) -> None:
    shards[0].unlink()
    shards[2].unlink()
    first, second, third = find_sources([shards[1]])
    assert [first.name, third.name] == [shards[0].name, shards[2].name]
    assert (first.waits, second.waits, third.waits) == ("not there yet", "", "not there yet")
    assert first.size_bytes == second.size_bytes == third.size_bytes, "guessed as large as the largest known"


def test_the_whole_model_s_size_places_a_download_that_has_not_begun(tmp_path: Path) -> None:
    found = find_sources([tmp_path / "m-00001-of-00004.gguf"], total_bytes=4_000)
    assert [(source.size_bytes, source.waits) for source in found] == [(1000, "not there yet")] * 4


def test_a_shard_that_is_too_short_waits_and_its_header_says_for_what(shards: tuple[Path, ...]) -> None:
    size = shards[1].stat().st_size
    os.truncate(shards[1], size - 1000)
    source = find_sources(shards)[1]
    assert source.header is None
    assert source.waits.endswith("are there")
    assert size - 1000 < source.size_bytes <= size
    assert source.there_bytes == size - 1000


@pytest.mark.parametrize("length", [0, 10, 200])
def test_a_shard_without_its_whole_header_waits(shards: tuple[Path, ...], length: int) -> None:
    os.truncate(shards[0], length)
    assert find_sources(shards)[0].header is None


def test_a_shard_whose_room_was_reserved_waits_for_its_bytes(shards: tuple[Path, ...]) -> None:
    whole = shards[1].read_bytes()
    with shards[1].open("wb") as file:
        file.write(whole[:4096])
        file.truncate(len(whole))
    source = find_sources(shards)[1]
    assert source.waits == "it has a hole at byte 4096, so something is still fetching it"


def test_a_shard_beside_which_a_downloader_keeps_notes_waits(shards: tuple[Path, ...]) -> None:
    shards[1].with_name(shards[1].name + ".aria2").touch()
    assert "still fetching it" in find_sources(shards)[1].waits


def test_a_file_that_is_no_shard_and_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such file"):
        find_sources([tmp_path / "model.gguf"])


def test_a_folder_without_shards_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"holds no \.gguf files"):
        find_sources([tmp_path])


def test_two_files_of_one_name_are_an_error(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        build_dense(tmp_path / folder / "m.gguf")
    with pytest.raises(UsageError, match="has the same name"):
        find_sources([tmp_path / "a", tmp_path / "b"])


def test_a_file_that_is_no_gguf_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"PK\x03\x04" + bytes(1000))
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        find_sources([tmp_path / "m.gguf"])
