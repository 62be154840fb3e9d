"""Plugins that exist on disk only for one test: real distributions with entry points, found by the real finder."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

_numbers = itertools.count()

GOOD_TIER = """
    from optaned.api import Driver, Options, hookimpl
    OPTANED_API = (1, 0)
    class Nothing(Options): pass
    @hookimpl
    def optaned_tiers():
        return [Driver("NAME", Nothing, print)]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that installs a plugin: entry-point name, source, and optionally group and distribution."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def put(name: str, source: str = GOOD_TIER, *, group: str = "optaned", distribution: str = "") -> Path:
        module = f"plugin_of_test_{next(_numbers)}"
        file = site / f"{module}.py"
        file.write_text(textwrap.dedent(source).replace("NAME", name))
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution or module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
        return file

    return put
