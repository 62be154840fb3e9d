"""From a plan to the engine's frame: homes, tiers, what goes where, and what this kernel would refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from optaned.config.open import open_config
from optaned.config.resolve import ResolvedConfig
from optaned.engine.messages import Placement
from optaned.errors import ConfigError
from optaned.hooks.drivers import Env
from optaned.pipeline.run import prepare
from optaned.server import carried_out
from optaned.server.compose import model_specs
from optaned.testing.gguf import build_moe

CONFIG = """
default_model = "m"
[models.m]
files = ["m.gguf"]
context = 128
[models.other]
files = ["m.gguf"]
context = 128
[tiers.dram0]
driver = "memory"
budget = "64MiB"
[tiers.nvme0]
driver = "file"
mount = "{folder}"
[placement]
policy = "{policy}"
promote_to = ["dram0"]
move_gbps = 1.5
profile = "night"
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTANED_STATE_DIR", str(tmp_path / "state"))


def resolved(folder: Path, policy: str) -> ResolvedConfig:
    build_moe(folder / "m.gguf", experts=8, used=2)
    (folder / "optaned.toml").write_text(CONFIG.format(folder=folder, policy=policy))
    return open_config(folder / "optaned.toml", {}).resolved


def placement(folder: Path, policy: str) -> Placement:
    config = resolved(folder, policy)
    found = carried_out.placement_of(config, prepare(config, Env()))
    assert found is not None
    return found


def test_the_plan_s_promotions_tiers_and_keys_reach_the_engine(tmp_path: Path) -> None:
    found = placement(tmp_path, "static")
    assert (found.homes, found.home_tiers) == (("block",), ("nvme0",))
    (dram,) = found.tiers
    kv_bytes = 4 * 128 * 2 * 2 * 2 * 16 * 2
    assert (dram.name, dram.driver, dram.budget_bytes) == ("dram0", "memory", (64 << 20) - kv_bytes)
    assert sum(len(part.experts) for part in found.promotions) == 16
    assert (found.policy, found.move_gbps) == ("static", 1.5)
    assert found.heat_path is not None
    assert Path(found.heat_path).name == "night.heat"


def test_a_policy_that_leaves_everything_at_home_takes_no_tier(tmp_path: Path) -> None:
    found = placement(tmp_path, "home")
    assert (found.tiers, found.promotions) == ((), ())


def test_a_policy_that_goes_on_deciding_has_its_tiers_before_it_knows_anything(tmp_path: Path) -> None:
    assert [tier.name for tier in placement(tmp_path, "heat").tiers] == ["dram0"]


def test_what_the_kernel_would_refuse_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise ConfigError("vm.overcommit_memory is 2")

    monkeypatch.setattr(carried_out, "check_overcommit", refuse)
    assert placement(tmp_path, "home").tiers == ()
    with pytest.raises(ConfigError, match="overcommit_memory is 2"):
        model_specs(resolved(tmp_path, "static"), word_path=None, report=lambda _stage: None)
