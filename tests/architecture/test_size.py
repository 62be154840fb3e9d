"""Files and functions stay small enough to hold in one's head."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for top in ("optaned", "plugins") for path in sorted((ROOT / top).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_is_one_idea(path: Path) -> None:
    source = path.read_text()
    tree = ast.parse(source)
    assert len(source.splitlines()) <= 400, f"{path} has grown two ideas"
    assert ast.get_docstring(tree), f"{path} does not say what it knows"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 60, f"{path}:{node.lineno}: {node.name} is {length} lines long"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_public_names_have_docstrings(path: Path) -> None:
    """Classes and top-level functions; methods may be plain where the protocol or the class says it all."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            hook = any(getattr(decorator, "id", "") == "hookimpl" for decorator in node.decorator_list)
            assert hook or ast.get_docstring(node), f"{path}:{node.lineno}: {node.name} has no docstring"


def test_the_median_file_is_short() -> None:
    assert statistics.median(len(path.read_text().splitlines()) for path in FILES) <= 150
