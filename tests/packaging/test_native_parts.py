"""The parts in C are optional for a user without a compiler, and never missing where we test."""

from __future__ import annotations

import ast
import importlib.util
import os
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "setup.py"


def declared() -> list[str]:
    """Return the modules that setup.py builds, read without running it."""
    for node in ast.parse(SETUP.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_SOURCES":
            assert isinstance(node.value, ast.Dict)
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    raise AssertionError("setup.py has no _SOURCES")


@pytest.mark.skipif(not os.environ.get("CI"), reason="a missing compiler is a failure in CI alone")
@pytest.mark.parametrize("name", declared())
def test_every_native_part_was_built(name: str) -> None:
    assert importlib.util.find_spec(name) is not None


def test_every_native_part_is_optional_and_has_its_sources() -> None:
    text = SETUP.read_text()
    assert "optional=True" in text
    assert len(declared()) >= 3
