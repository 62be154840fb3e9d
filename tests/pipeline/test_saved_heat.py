"""A plan begins with the experts that saved heat names, and never with another model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optaned.config.load import load
from optaned.config.resolve import resolve
from optaned.domain.model import Group
from optaned.errors import ConfigError
from optaned.hooks.drivers import Env
from optaned.hooks.host import PluginHost
from optaned.hooks.spec import GROUP, GUARD_GROUP
from optaned.pipeline.run import Prepared, prepare
from optaned.placement.heat import Heat
from optaned.residency.heat_file import heat_path, write_heat
from optaned.testing.gguf import build_dense, build_moe

CONFIG = """
[models.m]
files = ["m.gguf"]
context = 128
[tiers.dram0]
driver = "memory"
budget = "64MiB"
[placement]
policy = "heat"
promote_to = ["dram0"]
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPTANED_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def prepared(folder: Path, more: str = "") -> Prepared:
    file = folder / "optaned.toml"
    file.write_text(CONFIG + more)
    found = resolve(load(file, {}), PluginHost.discover(GROUP), PluginHost.discover(GUARD_GROUP), file=file)
    return prepare(found, Env())


def digest_of(ready: Prepared) -> str:
    assert ready.index is not None
    return ready.index.digest


def experts_of(ready: Prepared) -> list[int]:
    assert ready.plan is not None
    return [number for part in ready.plan.promotions for number in part.experts]


def test_without_saved_heat_the_trunk_alone_is_promoted(tmp_path: Path, state: Path) -> None:
    build_moe(tmp_path / "m.gguf", experts=8, used=2)
    ready = prepared(tmp_path)
    assert ready.heat is None
    assert ready.heat_path == heat_path(state, digest_of(ready), "default")
    assert ready.plan is not None
    assert [part.group for part in ready.plan.promotions] == [Group.TRUNK]
    assert ready.frequency is None


def test_saved_heat_names_the_first_experts_and_says_what_they_answer_for(tmp_path: Path, state: Path) -> None:
    build_moe(tmp_path / "m.gguf", experts=8, used=2)
    counts = np.zeros((2, 8))
    counts[0, [5, 1]], counts[1, [7, 2]] = (300, 100), (250, 150)
    heat = Heat.cold(16).observe(counts, 200)
    write_heat(heat_path(state, digest_of(prepared(tmp_path)), "night"), heat, digest=digest_of(prepared(tmp_path)))
    assert experts_of(prepared(tmp_path)) == []
    ready = prepared(tmp_path, 'profile = "night"\n')
    assert experts_of(ready) == [5, 15, 10, 1]
    assert ready.frequency is not None
    assert ready.frequency.sum() == pytest.approx(4)
    assert 1.4 < ready.frequency[5] < 1.5


def test_another_models_heat_is_refused_in_one_line(tmp_path: Path, state: Path) -> None:
    build_moe(tmp_path / "m.gguf", experts=8, used=2)
    path = heat_path(state, digest_of(prepared(tmp_path)), "default")
    write_heat(path, Heat.cold(16), digest="f" * 32)
    with pytest.raises(ConfigError, match=rf"^plan: heat: {path}: belongs to the model with digest f+") as caught:
        prepared(tmp_path)
    assert caught.value.exit_code == 78
    assert len(caught.value.lines) == 1


def test_a_dense_model_has_no_heat(tmp_path: Path) -> None:
    build_dense(tmp_path / "m.gguf")
    ready = prepared(tmp_path)
    assert (ready.heat, ready.heat_path) == (None, None)
    assert ready.plan is not None
    assert ready.plan.notes == ()
