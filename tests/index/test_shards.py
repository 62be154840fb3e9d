"""Shards come in any order; what is missing, doubled, renamed or foreign is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from optaned.errors import ModelFileError
from optaned.index import read_index
from optaned.testing.gguf import build_dense, build_split


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Path, ...]:
    return build_split(tmp_path / "m.gguf", shards=4)


def test_the_headers_order_counts_not_the_given_one(shards: tuple[Path, ...]) -> None:
    index = read_index([shards[2], shards[0], shards[3], shards[1]])
    assert tuple(shard.path for shard in index.shards) == shards
    assert index.digest == read_index(shards).digest


def test_missing_shards_are_named(shards: tuple[Path, ...]) -> None:
    with pytest.raises(ModelFileError, match=r"2 of 4 shards missing: m-00002-of-00004\.gguf, m-00004-of-00004\.gguf;"):
        read_index([shards[0], shards[2]])


def test_missing_shards_of_renamed_files_are_numbered(shards: tuple[Path, ...]) -> None:
    renamed = shards[0].rename(shards[0].with_name("first.gguf"))
    with pytest.raises(ModelFileError, match=r"3 of 4 shards missing: number 2, number 3, number 4;"):
        read_index([renamed])


def test_a_doubled_shard_is_named(shards: tuple[Path, ...], tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(shards[1].read_bytes())
    with pytest.raises(ModelFileError, match=re.escape(f"{copy}: shard 2 of 4 again, as {shards[1]} is")):
        read_index([*shards, copy])


def test_a_shard_under_anothers_name_is_named(shards: tuple[Path, ...]) -> None:
    first, second = shards[0].read_bytes(), shards[1].read_bytes()
    shards[0].write_bytes(second)
    shards[1].write_bytes(first)
    with pytest.raises(ModelFileError, match=r"00001-of-00004\.gguf: its name says shard 1 of 4, its header 2 of 4"):
        read_index(shards)


def test_shards_of_two_models_do_not_mix(shards: tuple[Path, ...], tmp_path: Path) -> None:
    other = build_split(tmp_path / "other.gguf", shards=2)
    with pytest.raises(ModelFileError, match="a shard of 2, beside shards of 4"):
        read_index([*shards[:3], other[1]])
    with pytest.raises(ModelFileError, match="a second model beside"):
        read_index([build_dense(tmp_path / "a.gguf"), build_dense(tmp_path / "b.gguf")])


def test_a_truncated_shard_is_told_from_the_whole_ones(shards: tuple[Path, ...]) -> None:
    shards[2].write_bytes(shards[2].read_bytes()[:-1000])
    with pytest.raises(ModelFileError, match=r"00003-of-00004\.gguf: truncated: "):
        read_index(shards)


def test_no_files_are_no_model() -> None:
    with pytest.raises(ModelFileError, match="at least one file"):
        read_index([])
