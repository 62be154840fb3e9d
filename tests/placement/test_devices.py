"""What a device takes while loading is planned as the library does it, and counted nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from optaned.domain.model import Group, ModelIndex
from optaned.domain.tiers import Offload, TierInfo, TierKind
from optaned.errors import ConfigError
from optaned.index.read import read_index
from optaned.placement.check import faults_of
from optaned.placement.devices import offloaded
from optaned.placement.fill import fill_tiers
from optaned.testing.gguf import build_moe

MIB = 1 << 20


@pytest.fixture
def index(tmp_path: Path) -> ModelIndex:
    return read_index([build_moe(tmp_path / "moe.gguf", layers=4)])


def names(index: ModelIndex, offload: Offload) -> set[str]:
    return {index.tensors[number].name for number in offloaded(index, offload)}


def test_whole_layers_go_from_the_last_one_and_the_output_with_them(index: ModelIndex) -> None:
    found = names(index, Offload("CUDA0", layers=2))
    assert "output.weight" in found
    assert "blk.3.attn_q.weight" in found
    assert "blk.2.attn_q.weight" in found
    assert not any(name.startswith(("blk.0.", "blk.1.", "token_embd")) for name in found)


def test_routed_experts_and_embeddings_never_go(index: ModelIndex) -> None:
    found = names(index, Offload("CUDA0"))
    assert not any("_exps" in name or name.startswith("token_embd") for name in found)
    assert "blk.0.ffn_gate_inp.weight" in found


def test_what_is_kept_stays(index: ModelIndex) -> None:
    assert not any("attn" in name for name in names(index, Offload("CUDA0", keep=("attn",))))


def tiers(index: ModelIndex, free_bytes: int) -> tuple[TierInfo, ...]:
    home = index.shards[0].lies_at.parent
    return (
        TierInfo("nvme", "file", TierKind.BLOCK, 1 << 30, 1 << 30, mount=home),
        TierInfo("dram", "memory", TierKind.BYTE, 1 << 30, 1 << 30),
        TierInfo("gpu", "device", TierKind.DEVICE, 64 * MIB, free_bytes, offload=Offload("CUDA0", layers=2)),
    )


def test_a_plan_counts_them_on_the_device_alone(index: ModelIndex) -> None:
    known = tiers(index, 64 * MIB)
    experts = range(len(index.expert_layers) * index.expert_count)
    plan = fill_tiers(index, known, promote_to=("gpu", "dram"), kv_bytes=0, experts=list(experts))
    assert faults_of(plan, index, known, 0) == []
    (on_gpu,) = [a for a in plan.allotments if a.tier == "gpu"]
    assert (on_gpu.group, on_gpu.home) == (Group.TRUNK, False)
    assert on_gpu.tensors == offloaded(index, Offload("CUDA0", layers=2))
    assert plan.kv_tier == "dram"
    (trunk,) = [a for a in plan.allotments if a.tier == "dram" and a.group is Group.TRUNK]
    assert not set(trunk.tensors) & set(on_gpu.tensors)
    assert trunk.size_bytes + on_gpu.size_bytes == index.trunk_bytes


def test_a_device_that_is_too_small_is_told_while_planning(index: ModelIndex) -> None:
    with pytest.raises(ConfigError, match="would be placed on CUDA0, which has 1 KiB free; lower `layers`"):
        fill_tiers(index, tiers(index, 1024), promote_to=("gpu",), kv_bytes=0)


def test_embeddings_that_are_the_output_too_need_a_second_copy(index: ModelIndex) -> None:
    tied = replace(index, tensors=tuple(t for t in index.tensors if t.name != "output.weight"))
    placed = offloaded(tied, Offload("CUDA0", layers=2))
    exact = sum(tied.tensors[number].place.size_bytes for number in placed)
    with pytest.raises(ConfigError, match="would be placed"):
        fill_tiers(tied, tiers(tied, exact), promote_to=("gpu",), kv_bytes=0)
