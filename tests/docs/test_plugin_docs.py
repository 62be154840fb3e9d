"""The plugin page documents every hook with its exact arguments, and its example is a plugin that works."""

from __future__ import annotations

import inspect
import re
import types
from pathlib import Path

import pluggy
import pytest

from optaned.api import Env, TierKind
from optaned.hooks import spec

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
