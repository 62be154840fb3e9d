"""The index agrees with the `gguf` package on every byte, and says in one line what is wrong with a broken file."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from optaned.domain.model import Group, ModelIndex
from optaned.errors import MissingFileError, ModelFileError
from optaned.index import read_index
from optaned.testing.gguf import build_dense, build_moe, build_split
from optaned.testing.kimi_k3 import K3Shape, build_kimi_k3


def places(files: tuple[Path, ...]) -> dict[str, tuple[int, int, int, str]]:
    """Return what the reference reader says: shard, offset, size and type of each tensor."""
    return {
        tensor.name: (number, int(tensor.data_offset), int(tensor.n_bytes), tensor.tensor_type.name)
        for number, file in enumerate(files)
        for tensor in gguf.GGUFReader(file).tensors
    }


def as_places(index: ModelIndex) -> dict[str, tuple[int, int, int, str]]:
    return {t.name: (t.place.shard, t.place.offset, t.place.size_bytes, t.type) for t in index.tensors}


def test_every_tensor_lies_where_the_reference_reader_finds_it(tmp_path: Path) -> None:
    dense = (build_dense(tmp_path / "dense.gguf"),)
    moe = build_split(tmp_path / "moe.gguf", shards=3, experts=4)
    k3 = build_kimi_k3(tmp_path / "k3.gguf", shape=K3Shape(experts=32, used=4))
    for files in (dense, moe, k3):
        assert as_places(read_index(files)) == places(files)


def test_it_says_what_kind_of_model_this_is(tmp_path: Path) -> None:
    index = read_index([build_moe(tmp_path / "m.gguf", experts=8, used=2, layers=3, context=777)])
    assert (index.architecture, index.name, index.layers) == ("llama", "tiny moe", 3)
    assert (index.expert_count, index.expert_used_count, index.trained_context) == (8, 2, 777)
    assert index.quantization == "F16"
    assert index.size_bytes == index.trunk_bytes + index.expert_bytes
    assert "tokenizer.ggml.tokens" not in index.metadata


def test_arrays_of_one_number_a_layer_are_kept(tmp_path: Path) -> None:
    index = read_index(build_kimi_k3(tmp_path / "k3.gguf", shape=K3Shape(experts=8, used=2)))
    assert index.metadata["kimi-k3.attention.head_count_kv"] == (0, 0, 0, 1)


def test_an_experts_ranges_are_its_slices_of_the_fused_tensors(tmp_path: Path) -> None:
    path = build_moe(tmp_path / "m.gguf", experts=4)
    index, reader = read_index([path]), gguf.GGUFReader(path)
    fused = {t.name: t for t in reader.tensors if "blk.1." in t.name and "_exps" in t.name}
    data = path.read_bytes()
    slices = [data[r.offset : r.end] for r in index.expert_ranges(1, 3)]
    assert sorted(slices) == sorted(tensor.data[3].tobytes() for tensor in fused.values())
    assert index.expert_ranges(99, 0) == ()
    with pytest.raises(IndexError):
        index.expert_ranges(1, 4)


def test_shared_experts_and_routers_are_trunk(tmp_path: Path) -> None:
    index = read_index(build_kimi_k3(tmp_path / "k3.gguf", shape=K3Shape(experts=8, used=2)))
    groups = {tensor.name: tensor.group for tensor in index.tensors}
    assert groups["blk.1.ffn_gate_exps.weight"] is Group.EXPERT
    assert groups["blk.1.ffn_gate_shexp.weight"] is Group.TRUNK
    assert groups["blk.1.ffn_gate_inp.weight"] is Group.TRUNK
    assert {t.layer for t in index.tensors} == {None, 0, 1, 2, 3}


def test_a_truncated_file_is_one_line_with_both_sizes(tmp_path: Path) -> None:
    path = build_dense(tmp_path / "m.gguf")
    os.truncate(path, 150_000)
    with pytest.raises(ModelFileError) as caught:
        read_index([path])
    assert str(caught.value) == f"{path}: truncated: 146.5 KiB on disk, header says 224.1 KiB; fetch it again"


def test_sizes_that_print_alike_are_given_in_bytes(tmp_path: Path) -> None:
    path = build_dense(tmp_path / "m.gguf")
    size = path.stat().st_size
    os.truncate(path, size - 40)
    with pytest.raises(ModelFileError, match=rf"truncated: {size - 40} B on disk, header says \d+ B"):
        read_index([path])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "truncated: 0 B on disk"),
        (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "big-endian"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "GGUF version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "truncated: 24 B on disk, but its header asks for more than"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "not a model"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63) + bytes(60), "its header asks for more than any disk holds"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1) + bytes(60), "array of the unknown type 9"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77) + bytes(60), "unknown type 77"),
    ],
)
def test_a_file_that_is_no_model_is_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        read_index([path])
    assert line in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"gone\.gguf: no such model file"):
        read_index([tmp_path / "gone.gguf"])


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a directory"):
        read_index([tmp_path])


def test_the_digest_follows_content_and_not_place(tmp_path: Path) -> None:
    first = build_dense(tmp_path / "a.gguf", seed=1)
    moved = tmp_path / "elsewhere.gguf"
    moved.write_bytes(first.read_bytes())
    assert read_index([moved]).digest == read_index([first]).digest
    assert read_index([build_dense(tmp_path / "c.gguf", seed=2)]).digest != read_index([first]).digest
    with moved.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x77")
    assert read_index([moved]).digest != read_index([first]).digest


def test_links_are_followed_to_where_the_bytes_lie(tmp_path: Path) -> None:
    blob = build_dense(tmp_path / "blob.gguf")
    link = tmp_path / "link.gguf"
    link.symlink_to(blob)
    (shard,) = read_index([link]).shards
    assert (shard.path, shard.lies_at) == (link, blob)


def test_the_largest_vocabularies_are_stepped_over_not_read(tmp_path: Path) -> None:
    path = tmp_path / "v.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"token {number}" for number in range(163_840)])
    writer.add_token_scores([0.0] * 163_840)
    writer.add_uint32("llama.block_count", 5)
    writer.add_tensor("output.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    index = read_index([path])
    assert index.layers == 5
    assert as_places(index) == places((path,))
