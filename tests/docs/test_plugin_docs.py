"""The plugin page documents every hook with its exact arguments, and its examples are plugins that work."""

from __future__ import annotations

import inspect
import re
import types
from pathlib import Path

import pluggy
import pytest

from optaned.api import Env, Level, Proposal, Snapshot, TierKind, Vote
from optaned.config.open import open_guard_config
from optaned.hooks import spec
from optaned.hooks.records import Status

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "write-a-plugin.md").read_text()
HOOKS = sorted(name for name, value in vars(spec).items() if name.startswith("optaned_") and inspect.isfunction(value))


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_a_heading_with_its_arguments_and_a_docstring(name: str) -> None:
    hook = getattr(spec, name)
    arguments = ", ".join(inspect.signature(hook).parameters)
    assert f"### `{name}({arguments})`" in PAGE
    assert inspect.getdoc(hook)


def test_the_page_names_no_hook_that_does_not_exist() -> None:
    assert set(re.findall(r"### `(optaned_\w+)\(", PAGE)) == set(HOOKS)


def test_the_example_is_a_plugin_that_works(tmp_path: Path) -> None:
    source = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "FolderTier" in code)
    module = types.ModuleType("optaned_folder")
    exec(compile(source, "write-a-plugin.md", "exec"), module.__dict__)
    manager = pluggy.PluginManager("optaned")
    manager.add_hookspecs(spec)
    manager.register(module)
    ((driver,),) = manager.hook.optaned_tiers()
    (tmp_path / "shard.gguf").write_bytes(b"x" * 100)
    info = driver.open("attic", driver.options(path=str(tmp_path)), Env()).probe()
    assert (info.name, info.kind, info.capacity_bytes) == ("attic", TierKind.BLOCK, 100)


def test_the_single_file_for_the_guard_reads_cools_and_votes(tmp_path: Path) -> None:
    source = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "Thermometer" in code)
    table = next(text for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "[sensors." in text)
    folder = tmp_path / "plugins" / "guard"
    folder.mkdir(parents=True)
    for path in (folder.parent, folder):
        path.chmod(0o755)
    (folder / "attic.py").write_text(source)
    (folder / "attic.py").chmod(0o644)
    (tmp_path / "optaned.toml").write_text(table.replace("/srv/attic", str(tmp_path)))
    (tmp_path / "celsius").write_text("45.5\n")
    guard, host = open_guard_config(tmp_path / "optaned.toml", {})
    (sensor,) = (source.open(Env()) for source in guard.sensors.values())
    (fan,) = (source.open(Env()) for source in guard.coolers.values())
    readings = sensor.read()
    assert [(r.point, r.celsius, r.is_valid) for r in readings] == [("roof", 45.5, True)]
    votes = host.votes(Snapshot(0.0, {"roof": readings}), Proposal(Level.COOL, 1.0, 0.0))
    assert votes == (Vote(cooling=0.5, reason="attic: a hot day in the attic"),)
    assert fan.drive(0.25).read_back == 0.25
    fan.release()
    assert (tmp_path / "fan").read_text() == "1.00"


def test_every_status_of_a_plugin_is_explained() -> None:
    rows = PAGE.partition("## What becomes of a plugin")[2].partition("##")[0]
    assert set(re.findall(r"^\| ([a-z ]+) \| ", rows, re.MULTILINE)) - {"status"} == set(map(str, Status))
