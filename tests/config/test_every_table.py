"""The configuration that the design promises, all tables of it, is valid against drivers like those it names."""

from __future__ import annotations

from pathlib import Path

from optaned.config.load import read_draft
from optaned.config.resolve import resolve_draft
from optaned.config.schema import Config
from optaned.hooks.host import PluginHost

FILE = Path(__file__).parent / "every_table.toml"


def test_it_is_valid_once_the_second_dram_and_mount_are_declared(
    tmp_path: Path, host: PluginHost, guard_host: PluginHost
) -> None:
    for mount, number in (("pmem0", 1), ("pmem1", 2)):
        (tmp_path / "mnt" / mount).mkdir(parents=True)
        (tmp_path / "mnt" / mount / f"Kimi-K3-IQ1_S-0000{number}-of-00002.gguf").touch()
    second = (
        '\n[tiers.dram1]\ndriver = "memory"\nnuma_node = 1\n[tiers.pmem1]\ndriver = "fsdax"\nmount = "/mnt/pmem1"\n'
    )
    file = tmp_path / "optaned.toml"
    file.write_text(FILE.read_text() + second)
    resolved = resolve_draft(read_draft(file, {}), host, guard_host, sysroot=tmp_path)
    assert len(resolved.model.files) == 2
    assert resolved.tiers["pmem0"].options.model_dump()["read_gbps"] == 29
    assert resolved.policy.name == "heat"
    assert {w.split(": ")[1] for w in resolved.warnings} == {
        "jobs.keep_days",
        "jobs.linger_s",
        "jobs.width",
        "notify.command",
    }


def test_it_names_every_table_of_the_schema() -> None:
    raw = read_draft(FILE, {}).raw
    assert set(Config.model_fields) - set(raw) == {"plugins"}
