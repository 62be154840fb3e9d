"""`optaned probe` and `optaned plan`, as a person and as a script read them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from click.testing import CliRunner

from optaned.cli.columns import columns
from optaned.cli.plan import plan
from optaned.cli.probe import probe, tier_object
from optaned.domain.tiers import TierInfo, TierKind
from optaned.errors import ModelFileError, UsageError
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


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered from elsewhere, nothing is left behind."""
    monkeypatch.setenv("OPTANED_STATE_DIR", str(tmp_path / "state"))


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
    model, _, dram, nvme, reads, memory, computing, note = output(plan, "--config", config).splitlines()
    assert model == "m: llama, F16, 893.5 KiB in 1 shard, 125.5 KiB trunk + 768 KiB experts (2 of 8 a token)"
    assert "128 KiB" in dram, "4 slots of 128 tokens"
    assert nvme.split()[-9:-4] == ["125.5", "KiB", "768", "KiB", "-"]
    assert nvme.endswith("281.5 KiB")
    assert reads == "a token reads 281.5 KiB, 0% of routed bytes from promoted experts"
    assert memory == "if memory binds: 1.21e+04 tokens/s at most"
    assert computing.startswith("if computing binds: as fast as from home")
    assert note.startswith("note: weights on nvme0 are read through the page cache")


def test_plan_accounts_for_every_byte_in_json(config: str) -> None:
    told = json.loads(output(plan, "m", "--config", config, "--json"))
    index = told["index"]
    assert index["trunk_bytes"] + index["expert_bytes"] == index["size_bytes"]
    assert sum(tier["trunk_bytes"] + tier["expert_bytes"] for tier in told["tiers"]) == index["size_bytes"]
    assert [tier["claimed_bytes"] for tier in told["tiers"]] == [told["plan"]["kv_bytes"], 0]
    assert (told["context"], told["slots"], told["plan"]["kv_tier"]) == (128, 4, "dram0")
    assert told["threads"] >= 1


def test_both_readings_of_the_forecast_and_what_each_tier_gives_are_told_in_json(config: str) -> None:
    told = json.loads(output(plan, "--config", config, "--json"))
    forecast = told["forecast"]
    read = sum(tier["trunk_bytes_per_token"] + tier["expert_bytes_per_token"] for tier in told["tiers"])
    assert read == pytest.approx(forecast["bytes_per_token"], abs=2)
    assert forecast["memory_bound_tokens_per_s"] == pytest.approx(3.5e9 / read, rel=1e-3)
    assert forecast["memory_bound_at_home_tokens_per_s"] == forecast["memory_bound_tokens_per_s"]
    assert (forecast["compute_bound_gain"], forecast["hit_share"]) == (1, 0.0)


def test_promotion_is_forecast_against_everything_at_home(config: str, tmp_path: Path) -> None:
    placement = '[placement]\npolicy = "static"\npromote_to = ["dram0"]\n'
    Path(config).write_text(Path(config).read_text() + placement)
    lines = output(plan, "--config", config).splitlines()
    assert lines[4] == "a token reads 281.5 KiB, 100% of routed bytes from promoted experts"
    assert lines[5] == "if memory binds: unknown without the bandwidth of dram0; measure it: optaned probe --measure"
    output(probe, "--config", config, "--measure", "--seconds", "0.05", "--threads", "1")
    (known,) = (line for line in output(plan, "--config", config).splitlines() if line.startswith("if memory binds"))
    assert known.endswith("with everything at home")


def test_measuring_is_remembered_and_says_where(config: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(
        probe,
        ["--config", config, "--measure", "--seconds", "0.05", "--threads", "1", "--json"],
        catch_exceptions=False,
    )
    dram, nvme = json.loads(found.stdout)["tiers"]
    assert dram["read_gbps"] > 0
    assert nvme["read_gbps"] > 0
    assert found.stderr == f"remembered in {tmp_path / 'state' / 'bandwidth.json'}\n"
    again = json.loads(output(probe, "--config", config, "--json"))["tiers"]
    assert again[0]["read_gbps"] == dram["read_gbps"]
    assert again[1]["read_gbps"] == 3.5, "what is declared wins"


def test_a_plan_for_another_machine_needs_its_probe_and_the_headers_alone(config: str, tmp_path: Path) -> None:
    recorded = tmp_path / "probe.json"
    tiers = [
        TierInfo("dram0", "memory", TierKind.BYTE, 64 << 30, 64 << 30, 20.0),
        TierInfo("nvme0", "file", TierKind.BLOCK, 1 << 40, 1 << 40, 5.0, mount=Path("/mnt/far")),
    ]
    recorded.write_text(json.dumps({"tiers": [tier_object(tier) for tier in tiers]}))
    header = (tmp_path / "m.gguf").rename(tmp_path / "elsewhere.gguf")
    Path(config).write_text(CONFIG.format(folder="/mnt/far").replace('["m.gguf"]', '["/mnt/far/else*.gguf"]'))
    told = json.loads(output(plan, "--config", config, "--probe", str(recorded), "--header", str(header), "--json"))
    assert [tier["name"] for tier in told["tiers"]] == ["dram0", "nvme0"]
    assert told["tiers"][1]["expert_bytes"] == told["index"]["expert_bytes"]
    with pytest.raises(UsageError, match="--header needs --probe"):
        output(plan, "--config", config, "--header", str(header))


def test_a_model_of_kimi_k3_s_size_is_planned_from_a_sparse_file(tmp_path: Path) -> None:
    """93 layers, 896 experts, 163,840 tokens; it takes about a second, which a busy machine must not fail."""
    sparse_k3(tmp_path / "k3.gguf")
    file = tmp_path / "optaned.toml"
    tables = CONFIG.format(folder=tmp_path).replace("m.gguf", "k3.gguf")
    file.write_text(tables + '[placement]\npolicy = "static"\npromote_to = ["dram0"]\n')
    recorded = tmp_path / "probe.json"
    tiers = (
        TierInfo("dram0", "memory", TierKind.BYTE, 128 << 30, 96 << 30, 100.0),
        TierInfo("nvme0", "fsdax", TierKind.BYTE, 1 << 40, 0, 29.0, mount=tmp_path),
    )
    recorded.write_text(json.dumps({"tiers": [tier_object(tier) for tier in tiers]}))
    told = json.loads(output(plan, "--config", str(file), "--probe", str(recorded), "--json"))
    assert (told["index"]["experts"], told["index"]["experts_used"]) == (896, 16)
    dram = told["tiers"][0]
    assert dram["trunk_bytes"] == told["index"]["trunk_bytes"]
    assert 0 < dram["expert_bytes"] <= (96 << 30) - dram["trunk_bytes"] - told["plan"]["kv_bytes"]
    forecast = told["forecast"]
    assert forecast["memory_bound_tokens_per_s"] > 1.5 * forecast["memory_bound_at_home_tokens_per_s"]


def sparse_k3(path: Path) -> None:
    """Write a header of the real sizes; the file is as long as it says and takes 6 MB of disk."""
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_block_count, 93),
        (writer.add_expert_count, 896),
        (writer.add_expert_used_count, 16),
        (writer.add_context_length, 32768),
        (writer.add_embedding_length, 7168),
        (writer.add_head_count, 64),
        (writer.add_head_count_kv, 8),
        (writer.add_key_length, 128),
        (writer.add_value_length, 128),
    ):
        add(value)
    writer.add_token_list([f"token {number}" for number in range(163_840)])
    writer.add_token_types([1] * 163_840)
    size = sum(_announce(writer, name, shape, kind) for name, shape, kind in _k3_tensors())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(-(-file.seek(0, 2) // 32) * 32 + size)


def _k3_tensors() -> Iterator[tuple[str, tuple[int, ...], gguf.GGMLQuantizationType]]:
    dense, routed = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.IQ1_S
    yield "token_embd.weight", (163_840, 7168), dense
    yield "output.weight", (163_840, 7168), dense
    for layer in range(93):
        yield from ((f"blk.{layer}.attn_{name}.weight", (7168, 7168), dense) for name in ("q", "k", "v", "output"))
        if layer:
            yield f"blk.{layer}.ffn_gate_inp.weight", (896, 7168), dense
            for name in ("gate", "up", "down"):
                yield f"blk.{layer}.ffn_{name}_shexp.weight", (6144, 7168), dense
                yield f"blk.{layer}.ffn_{name}_exps.weight", (896, 3072, 3584), routed


def _announce(writer: gguf.GGUFWriter, name: str, shape: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> int:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    total = math.prod(shape) // block * size
    writer.add_tensor_info(name, gguf.quant_shape_to_byte_shape(shape, kind), np.dtype(np.uint8), total, kind)
    return -(-total // 32) * 32


def test_a_broken_model_stops_the_plan_in_one_line(config: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelFileError, match=r"index: models\.m: .*m\.gguf: truncated: 4 B on disk"):
        output(plan, "--config", config)


def test_columns_set_numbers_to_the_right() -> None:
    assert columns(("a", "size"), (("x", "1 B"), ("long", "12 B"))) == "a     size\nx      1 B\nlong  12 B"
