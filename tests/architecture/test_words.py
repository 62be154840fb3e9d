"""The project speaks of itself alone, and swallows no error in silence."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACKED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()
TEXTS = [
    name
    for name in TRACKED
    if Path(name).suffix in {".py", ".md", ".toml", ".sh", ".json", ".c", ""} and (ROOT / name).is_file()
]
FOREIGN = re.compile(rf"{re.escape(str(ROOT))}/|\bissue #?\d|TODO|FIXME|XXX")


@pytest.mark.skipif(not TEXTS, reason="not a git checkout")
def test_no_text_names_a_workplace() -> None:
    own = Path(__file__).name
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in TEXTS
        if not name.endswith(own)
        for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_handler_swallows_everything() -> None:
    """A broad `except` must do something: a bare `pass` under Exception hides bugs."""
    for top in ("optaned", "plugins"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ExceptHandler):
                    broad = node.type is None or getattr(node.type, "id", "") in {"Exception", "BaseException"}
                    empty = all(isinstance(statement, ast.Pass) for statement in node.body)
                    assert not (broad and empty), f"{path}:{node.lineno}: swallows every error"
