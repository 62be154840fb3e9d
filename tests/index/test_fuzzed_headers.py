"""Whatever bytes a header is made of: a valid index or one line, and no more memory than the file is long."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optaned.errors import ModelFileError
from optaned.index import read_index
from optaned.index.reading import WINDOW_BYTES
from optaned.testing.gguf import build_moe

OFTEN = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
EXTREMES = (0, 1, 9, 0x7F, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build_moe(tmp_path_factory.mktemp("fuzz") / "m.gguf", experts=2, width=32, layers=1).read_bytes()


def survives(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    fault, index = None, None
    try:
        index = read_index([path])
    except ModelFileError as error:
        fault = str(error).replace(str(path), "")
    if index is None:
        assert fault
        assert "\n" not in fault
    else:
        assert all(t.place.end <= len(content) for t in index.tensors)
        assert index.trunk_bytes + index.expert_bytes == index.size_bytes


@OFTEN
@given(edits=st.lists(st.tuples(st.integers(0, 9000), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
def test_any_bytes_may_change(sound: bytes, tmp_path: Path, edits: list[tuple[int, bytes]]) -> None:
    content = bytearray(sound)
    for offset, new in edits:
        content[offset : offset + len(new)] = new
    survives(tmp_path / "m.gguf", bytes(content))


@OFTEN
@given(offset=st.integers(0, 9000), lie=st.sampled_from(EXTREMES), width=st.sampled_from((4, 8)))
def test_any_count_may_lie(sound: bytes, tmp_path: Path, offset: int, lie: int, width: int) -> None:
    number = (lie & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    survives(tmp_path / "m.gguf", sound[:offset] + number + sound[offset + width :])


@OFTEN
@given(length=st.integers(0, 12_000))
def test_a_download_may_break_off_anywhere(sound: bytes, tmp_path: Path, length: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(sound[:length])
    with pytest.raises(ModelFileError, match="truncated"):
        read_index([path])


def test_a_lying_length_costs_no_memory(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    path.write_bytes(sound[:16] + (1 << 62).to_bytes(8, "little") + sound[24:])
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a terabyte of nothing: the size on disk would allow many lies
    tracemalloc.start()
    with pytest.raises(ModelFileError):
        read_index([path])
    assert tracemalloc.get_traced_memory()[1] < 8 * WINDOW_BYTES
    tracemalloc.stop()
