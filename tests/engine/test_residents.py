"""What lies where, of models of every kind."""

from __future__ import annotations

from pathlib import Path

from optaned.engine.residents import Residents
from optaned.index import read_index
from optaned.testing.gguf import build_dense, build_moe


def test_a_model_without_experts_has_all_of_its_bytes_in_the_trunk_at_home(tmp_path: Path) -> None:
    index = read_index([build_dense(tmp_path / "dense.gguf")])
    (home,) = Residents(index, (), ("disk",)).uses()
    assert (home.name, home.trunk_bytes, home.expert_bytes, home.experts) == ("disk", index.trunk_bytes, 0, 0)


def test_a_model_with_experts_counts_them_at_home(tmp_path: Path) -> None:
    index = read_index([build_moe(tmp_path / "moe.gguf")])
    (home,) = Residents(index, (), ("disk",)).uses()
    assert (home.trunk_bytes, home.expert_bytes) == (index.trunk_bytes, index.expert_bytes)
    assert home.experts == len(index.expert_layers) * index.expert_count
