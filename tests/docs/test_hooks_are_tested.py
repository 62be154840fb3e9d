"""Each hook has a test that implements it, as a plugin would."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from optaned.hooks import spec

TESTS = Path(__file__).resolve().parents[1]
HOOKS = sorted(name for name, value in vars(spec).items() if name.startswith("optaned_") and inspect.isfunction(value))


@pytest.mark.parametrize("hook", HOOKS)
def test_some_test_implements_the_hook(hook: str) -> None:
    implementation = re.compile(rf"def {hook}\(")
    sources = [path for path in TESTS.rglob("*.py") if path != Path(__file__)]
    page = TESTS.parent / "docs" / "write-a-plugin.md"  # its examples are run by a test
    assert any(implementation.search(path.read_text()) for path in (*sources, page))
