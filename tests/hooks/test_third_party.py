"""A frozen package by somebody else, written against API 1.0, is installed by pip and used through its entry points."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from optaned.api import (
    Allotment,
    ByteRange,
    ChatRequest,
    ChatSetting,
    Env,
    Group,
    ModelIndex,
    PlanRequest,
    Shard,
    Tensor,
    TierInfo,
    TierKind,
    VocabularyInfo,
)
from optaned.hooks.host import PluginHost

SOURCE = Path(__file__).parents[1] / "fixtures" / "third_party"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("third-party")
    shutil.copytree(SOURCE, folder / "source")  # a build leaves files beside its source
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--target", str(folder / "site"), str(folder / "source")]
    subprocess.run(command, check=True, timeout=100)
    return folder / "site"


@pytest.fixture
def host(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginHost]:
    monkeypatch.syspath_prepend(str(site))
    yield PluginHost.discover(wanted=["example"])
    for module in [name for name in sys.modules if name.startswith("optaned_example")]:
        monkeypatch.delitem(sys.modules, module)


def test_it_is_loaded_with_everything_it_offers(host: PluginHost) -> None:
    record = next(r for r in host.records if r.name == "example")
    assert (record.status, record.distribution) == ("loaded", "optaned-example 1.0")
    assert record.drivers == ("chat_formats/transcript", "placement_policies/shelf-first", "tiers/shelf")


def test_its_tier_probes_a_folder(host: PluginHost, tmp_path: Path) -> None:
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv" / "book").write_bytes(b"x" * 1000)
    driver = host.driver("tiers", "shelf")
    options = driver.options.model_validate_json('{"mount": "/srv", "size": "4KiB"}')
    info = driver.open("attic", options, Env(sysroot=tmp_path)).probe()
    assert (info.name, info.kind, info.capacity_bytes, info.free_bytes) == ("attic", TierKind.BLOCK, 4096, 3096)


def test_its_policy_leaves_every_byte_on_the_tier_that_holds_it(host: PluginHost) -> None:
    shard = Shard(Path("/srv/a.gguf"), 100, 0)
    tensors = tuple(Tensor(n, (1,), "F32", ByteRange(0, 10, 40), None, Group.TRUNK) for n in ("a", "b"))
    index = ModelIndex("llama", "tiny", (shard,), tensors, "digest", layers=1)
    attic = TierInfo("attic", "shelf", TierKind.BLOCK, 1000, 1000, mount=Path("/srv"))
    dram = TierInfo("dram0", "memory", TierKind.BYTE, 1000, 1000)
    driver = host.driver("placement_policies", "shelf-first")
    policy = driver.open("shelf-first", driver.options(), Env())
    plan = policy.plan(PlanRequest(index, (attic, dram), kv_bytes=7))
    assert plan.allotments == (Allotment("attic", Group.TRUNK, 80, home=True),)
    assert (plan.kv_tier, plan.kv_bytes) == ("dram0", 7)


def test_its_chat_format_keeps_user_text_apart(host: PluginHost) -> None:
    setting = ChatSetting(VocabularyInfo(size=10, name="hal"))
    chat = host.driver("chat_formats", "transcript").open("transcript", setting, Env())
    segments = chat.render(ChatRequest(({"role": "user", "content": "<|end|>"},)))
    assert "".join(s.text for s in segments) == "user: <|end|>\nhal:"
    assert [s.text for s in segments if not s.markup] == ["<|end|>"]


def test_a_configuration_uses_it(site: Path, tmp_path: Path) -> None:
    (tmp_path / "optaned.toml").write_text(f"""
        [models.m]
        chat_format = "transcript"
        [tiers.attic]
        driver = "shelf"
        mount = "{tmp_path}"
        size = "1GiB"
        [placement]
        policy = "shelf-first"
        [placement.shelf-first]
        kv_tier = "attic"
        [engine]
        backend = "echo"
    """)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = [sys.executable, "-m", "optaned.cli.optaned"]
    checked = subprocess.run(
        [*run, "check", str(tmp_path / "optaned.toml")], env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "attic (shelf)" in checked.stdout
    listed = subprocess.run([*run, "plugins", "--json"], env=environment, cwd=tmp_path, capture_output=True, check=True)
    assert "optaned-example 1.0" in [r["distribution"] for r in json.loads(listed.stdout)]
