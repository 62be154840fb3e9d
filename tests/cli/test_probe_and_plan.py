"""`optaned probe` and `optaned plan`, as a person and as a script read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optaned.cli.columns import columns
from optaned.cli.plan import plan
from optaned.cli.probe import probe
from optaned.errors import ModelFileError
from optaned.testing.gguf import build_moe

CONFIG = """
[models.m]
files = ["m.gguf"]
context = 128
[tiers.dram0]
driver = "memory"
[tiers.nvme0]
driver = "file"
mount = "{folder}"
read_gbps = 3.5
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    build_moe(tmp_path / "m.gguf", experts=8, used=2)
    file = tmp_path / "optaned.toml"
    file.write_text(CONFIG.format(folder=tmp_path))
    return str(file)


def output(command: Any, *arguments: str) -> str:
    return CliRunner().invoke(command, arguments, catch_exceptions=False).output


def test_probe_shows_a_row_a_tier(config: str, tmp_path: Path) -> None:
    header, dram, nvme = output(probe, "--config", config).splitlines()
    assert header.split() == ["tier", "driver", "kind", "capacity", "free", "read", "node", "where"]
    assert dram.split()[:3] == ["dram0", "memory", "byte"]
    assert "3.5 GB/s" in nvme
    assert nvme.endswith(str(tmp_path))


def test_probe_says_the_same_in_json(config: str) -> None:
    dram, nvme = json.loads(output(probe, "--config", config, "--json"))["tiers"]
    assert (dram["name"], dram["kind"], dram["mount"], dram["read_gbps"]) == ("dram0", "byte", None, None)
    assert nvme["capacity_bytes"] > 0
    assert nvme["read_gbps"] == 3.5


def test_plan_shows_the_model_and_what_lies_on_each_tier(config: str) -> None:
    model, _, dram, nvme, note = output(plan, "--config", config).splitlines()
    assert model == "m: llama, F16, 893.5 KiB in 1 shard, 125.5 KiB trunk + 768 KiB experts (2 of 8 a token)"
    assert "128 KiB" in dram, "4 slots of 128 tokens"
    assert nvme.split()[-7:-2] == ["125.5", "KiB", "768", "KiB", "-"]
    assert note.startswith("note: weights on nvme0 are read through the page cache")


def test_plan_accounts_for_every_byte_in_json(config: str) -> None:
    told = json.loads(output(plan, "m", "--config", config, "--json"))
    index = told["index"]
    assert index["trunk_bytes"] + index["expert_bytes"] == index["size_bytes"]
    assert sum(tier["trunk_bytes"] + tier["expert_bytes"] for tier in told["tiers"]) == index["size_bytes"]
    assert [tier["claimed_bytes"] for tier in told["tiers"]] == [told["plan"]["kv_bytes"], 0]
    assert (told["context"], told["slots"], told["plan"]["kv_tier"]) == (128, 4, "dram0")
    assert told["threads"] >= 1


def test_a_broken_model_stops_the_plan_in_one_line(config: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelFileError, match=r"index: models\.m: .*m\.gguf: truncated: 4 B on disk"):
        output(plan, "--config", config)


def test_columns_set_numbers_to_the_right() -> None:
    assert columns(("a", "size"), (("x", "1 B"), ("long", "12 B"))) == "a     size\nx      1 B\nlong  12 B"
