"""From a configuration to what an engine is asked to load, and every failure named with its stage and cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from optaned.config.load import load
from optaned.config.lookup import ResolvedDriver
from optaned.config.resolve import ResolvedConfig, resolve
from optaned.domain.model import Group
from optaned.domain.tiers import PlacementPlan, TierInfo, TierKind
from optaned.errors import ConfigError, MissingFileError, ModelFileError, PluginError, UsageError
from optaned.hooks.drivers import Driver, Env, Options, PlanRequest
from optaned.hooks.host import PluginHost
from optaned.hooks.spec import GROUP, GUARD_GROUP
from optaned.pipeline.probe import probe
from optaned.pipeline.run import prepare
from optaned.testing.gguf import build_dense, build_split

TIERS = '[tiers.dram0]\ndriver = "memory"\n'


def configured(folder: Path, text: str) -> ResolvedConfig:
    file = folder / "optaned.toml"
    file.write_text(text)
    return resolve(load(file, {}), PluginHost.discover(GROUP), PluginHost.discover(GUARD_GROUP), file=file)


def one_model(folder: Path, *, more: str = "", tiers: str = TIERS) -> ResolvedConfig:
    build_dense(folder / "m.gguf")
    return configured(folder, f'[models.m]\nfiles = ["m.gguf"]\ncontext = 512\n{more}\n{tiers}')


def test_a_model_in_any_folder_is_a_file_on_a_disk(tmp_path: Path) -> None:
    stages: list[str] = []
    ready = prepare(one_model(tmp_path), Env(), report=stages.append)
    assert stages == ["probe", "index", "plan"]
    assert ready.index is not None
    assert ready.plan is not None
    disk = next(tier for tier in ready.tiers if tier.name == "disk")
    assert (disk.driver, disk.kind) == ("undeclared", TierKind.BLOCK)
    assert ready.plan.used_bytes("disk") == ready.index.size_bytes
    assert ready.plan.kv_tier == "dram0"
    assert ready.plan.kv_bytes == 4 * 512 * 2 * 2 * 2 * 16 * 2
    assert (ready.request.context, ready.request.slots, ready.request.kv_cache) == (512, 4, "f16")
    assert ready.request.files == (tmp_path / "m.gguf",)


def test_shards_on_two_tiers_stay_there_and_load_in_order(tmp_path: Path) -> None:
    shards = build_split(tmp_path / "m.gguf", shards=2, experts=4)
    homes = [tmp_path / "a" / shards[1].name, tmp_path / "b" / shards[0].name]
    for home, shard in zip(homes, reversed(shards), strict=True):
        home.parent.mkdir()
        shard.rename(home)
    tiers = "".join(f'[tiers.{name}]\ndriver = "file"\nmount = "{tmp_path / name}"\n' for name in ("a", "b"))
    ready = prepare(configured(tmp_path, f'[models.m]\nfiles = ["*/*.gguf"]\n{TIERS}{tiers}'), Env())
    assert ready.plan is not None
    assert ready.index is not None
    assert ready.request.files == (homes[1], homes[0])
    assert {a.tier for a in ready.plan.allotments} == {"a", "b"}
    assert ready.plan.group_bytes(Group.EXPERT) == ready.index.expert_bytes


def test_each_stage_names_itself_and_the_cause(tmp_path: Path) -> None:
    broken = one_model(tmp_path)
    whole = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(whole[:100_000])
    with pytest.raises(ModelFileError, match=r"^index: models\.m: .*/m\.gguf: truncated: 97\.66 KiB on disk"):
        prepare(broken, Env())
    (tmp_path / "m.gguf").write_bytes(whole)
    with pytest.raises(ConfigError, match=r"^plan: placement\.policy home: no byte-addressable tier"):
        prepare(one_model(tmp_path, tiers=""), Env())
    gone = one_model(tmp_path, tiers=f'{TIERS}[tiers.nvme0]\ndriver = "file"\nmount = "/nowhere/at/all"')
    with pytest.raises(
        MissingFileError, match=r"^probe: tiers\.nvme0 \(driver file\): /nowhere/at/all: no such folder"
    ):
        prepare(gone, Env())


def test_files_of_another_quantization_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"quantization\.weights is 'IQ1_S', but the files hold F16"):
        prepare(one_model(tmp_path, more='quantization.weights = "IQ1_S"'), Env())
    assert prepare(one_model(tmp_path, more='quantization.weights = "f16"'), Env()).index is not None


def test_a_model_that_is_not_declared_is_told_which_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no model 'n' in .*optaned\.toml; declared: m"):
        prepare(one_model(tmp_path), Env(), model="n")


@dataclass
class FakeTier:
    """A tier that answers as told, and remembers being closed."""

    answer: object
    closed: bool = False

    def probe(self) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        self.closed = True


def with_tier(resolved: ResolvedConfig, tier: FakeTier) -> ResolvedConfig:
    driver = Driver("odd", Options, lambda name, options, env: tier)
    tiers: Mapping[str, ResolvedDriver] = {"t": ResolvedDriver("t", driver, Options())}
    return replace(resolved, tiers=tiers)


def test_a_driver_that_breaks_is_one_line_and_is_closed(tmp_path: Path) -> None:
    for answer, line in (
        (ValueError("bad\nbytes"), "it failed: ValueError: bad bytes; choose another driver"),
        (None, "it returned None instead of the tier's TierInfo"),
        (TierInfo("other", "odd", TierKind.BYTE, 1, 1), "instead of the tier's TierInfo"),
    ):
        tier = FakeTier(answer)
        with pytest.raises(PluginError) as caught:
            probe(with_tier(one_model(tmp_path), tier), Env())
        assert str(caught.value).startswith("probe: tiers.t (driver odd): ")
        assert line in str(caught.value)
        assert tier.closed


class LostPolicy:
    """Forgets all weights and puts the cache on a tier that is not there."""

    def plan(self, request: PlanRequest) -> PlacementPlan:
        return PlacementPlan((), "gpu7", request.kv_bytes)


def test_a_policy_that_breaks_the_rules_is_not_believed(tmp_path: Path) -> None:
    policy = ResolvedDriver("lost", Driver("lost", Options, lambda name, options, env: LostPolicy()), Options())
    with pytest.raises(PluginError) as caught:
        prepare(replace(one_model(tmp_path), policy=policy), Env())
    assert len(caught.value.lines) == 2
    assert caught.value.lines[0].startswith("plan: placement.policy lost: it names the tier 'gpu7'")
    assert "it places 0 B of trunk" in caught.value.lines[1]
