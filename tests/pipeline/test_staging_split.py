"""A model that is cut anew is the same model: every tensor, every key, in shards that other readers take."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from optaned.errors import ModelFileError
from optaned.index import read_index
from optaned.index.header import read_header
from optaned.pipeline.staging.copying import Copier, Watcher
from optaned.pipeline.staging.splitting import cut, whole_of
from optaned.pipeline.staging.verify import check_tensors
from optaned.testing.gguf import build_moe, build_split


def cut_into(sources: tuple[Path, ...], folder: Path, pieces: int) -> list[Path]:
    folder.mkdir()
    recipes = cut(whole_of([read_header(path) for path in sources]), pieces)
    copier = Copier(Watcher(lambda: None, lambda size_bytes: None))
    written = [copier.copy(recipe, folder, verify=True).path for recipe in recipes]
    copier.close()
    return written


def tensors(files: list[Path] | tuple[Path, ...]) -> dict[str, tuple[object, ...]]:
    """Return name → shape, type and bytes, as the format's reference reads them."""
    found = {}
    for path in files:
        for tensor in gguf.GGUFReader(path).tensors:
            found[tensor.name] = (tuple(tensor.shape), tensor.tensor_type, tensor.data.tobytes())
    return found


@pytest.mark.parametrize("pieces", [1, 2, 5, 1000])
@pytest.mark.parametrize("shards", [1, 3])
def test_all_tensors_and_keys_survive(tmp_path: Path, pieces: int, shards: int) -> None:
    build = build_split(tmp_path / "m.gguf", shards=3, experts=4) if shards > 1 else (build_moe(tmp_path / "m.gguf"),)
    written = cut_into(build, tmp_path / "cut", pieces)
    assert tensors(written) == tensors(build)
    before, after = read_index(build), read_index(written)
    assert [t.name for t in before.tensors] == [t.name for t in after.tensors]
    own = {key: value for key, value in after.metadata.items() if not key.startswith("split.")}
    assert own == {key: value for key, value in before.metadata.items() if not key.startswith("split.")}
    assert after.metadata["split.count"] == len(written)
    vocabularies = [gguf.GGUFReader(files[0]).fields["tokenizer.ggml.tokens"].contents() for files in (build, written)]
    assert vocabularies[0] == vocabularies[1]


def test_shards_are_about_equal_and_named_by_their_number(tmp_path: Path) -> None:
    source = build_moe(tmp_path / "m.gguf", layers=8)
    written = cut_into((source,), tmp_path / "cut", 4)
    assert [path.name for path in written][:2] == ["m-00001-of-00005.gguf", "m-00002-of-00005.gguf"]
    limit = sum(t.size_bytes for t in read_header(source).tensors) / 4 + 65_536
    assert all(path.stat().st_size <= limit for path in written)


def test_a_split_model_keeps_its_stem(tmp_path: Path) -> None:
    written = cut_into(build_split(tmp_path / "m.gguf", shards=3), tmp_path / "cut", 2)
    assert written[0].name.startswith("m-00001-of-0000")


def test_a_changed_byte_is_found_and_its_tensor_named(tmp_path: Path) -> None:
    source = build_moe(tmp_path / "m.gguf")
    written = cut_into((source,), tmp_path / "cut", 3)
    seen: list[int] = []
    check_tensors([read_header(source)], written, seen.append)
    assert sum(seen) == 2 * sum(t.size_bytes for t in read_header(source).tensors)
    victim = read_header(written[1]).tensors[0]
    with written[1].open("r+b") as file:
        file.seek(victim.offset)
        byte = file.read(1)
        file.seek(victim.offset)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(ModelFileError, match=f"tensor '{victim.name}' differs"):
        check_tensors([read_header(source)], written, seen.append)
