"""Another machine's tiers, from what its probe printed."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.api import ByteRange, Group, ModelIndex, Shard, Tensor, TierInfo, TierKind
from optaned.cli.probe import tier_object
from optaned.errors import ConfigError, MissingFileError
from optaned.pipeline.recorded import as_declared, read_probe

TIERS = (
    TierInfo("dram0", "memory", TierKind.BYTE, 100, 90, 20.5, numa_node=0),
    TierInfo("pmem0", "fsdax", TierKind.BYTE, 900, 10, None, mount=Path("/mnt/pmem0"), dimms=("nmem0",)),
)


def test_what_a_probe_printed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "probe.json"
    file.write_text(json.dumps({"tiers": [tier_object(tier) for tier in TIERS]}))
    assert read_probe(file) == TIERS


def test_a_file_that_is_no_probe_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"probe\.json: no such file or directory; record one"):
        read_probe(tmp_path / "probe.json")
    for text in ("", "[]", "{}", '{"tiers": [{}]}', '{"tiers": 3}', '{"tiers": [{"name": "x"}]}'):
        (tmp_path / "probe.json").write_text(text)
        with pytest.raises(ConfigError, match="is no recorded probe"):
            read_probe(tmp_path / "probe.json")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tiers", "name", "kind"]), inner),
        max_leaves=8,
    )
)
def test_nonsense_is_never_another_error(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "probe.json"
        file.write_text(json.dumps(value))
        with suppress(ConfigError):
            read_probe(file)


def test_shards_lie_where_the_configuration_names_them() -> None:
    shards = tuple(Shard(Path(f"/tmp/here/m-0000{n}-of-00003.gguf"), 10, 0) for n in (1, 2, 3))
    tensors = (Tensor("t", (1,), "I8", ByteRange(0, 0, 1), None, Group.TRUNK),)
    index = ModelIndex("a", "a", shards, tensors, "d", 1)
    patterns = (Path("/mnt/pmem0/m-00001-*.gguf"), Path("/mnt/pmem1/m-00002-of-00003.gguf"))
    placed = as_declared(index, patterns)
    assert [str(shard.lies_at) for shard in placed.shards] == [
        "/mnt/pmem0/m-00001-of-00003.gguf",
        "/mnt/pmem1/m-00002-of-00003.gguf",
        "/tmp/here/m-00003-of-00003.gguf",
    ]
    assert placed.shards[0].path == shards[0].path, "headers are read where they are"
