"""ARCHITECTURE.md draws the house that stands: its folders, its layers, its dependencies."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
TREE = PAGE.partition("## The tree")[2].partition("```")[2].partition("```")[0]
HIDDEN = {".ci", "docs", "build", "dist"}


def _folders(base: Path) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", str(base)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:  # an unpacked archive
        return {p.name for p in base.iterdir() if p.is_dir() and not p.name.startswith(("_", "."))}
    parts = (Path(ROOT, line).relative_to(base).parts for line in listed.stdout.splitlines())
    return {path[0] for path in parts if len(path) > 1}


def test_the_tree_has_every_folder_and_no_other() -> None:
    top = set(re.findall(r"^(\w+)/", TREE, re.MULTILINE))
    assert top == _folders(ROOT) - HIDDEN
    core = set(re.findall(r"^  (\w+)/", TREE, re.MULTILINE))
    assert core == _folders(ROOT / "optaned")


def test_files_that_the_tree_names_exist() -> None:
    named = set(re.findall(r"\b(\w+\.py)\b", TREE))
    assert named <= {path.name for path in (ROOT / "optaned").rglob("*.py")}


def test_the_layers_are_the_folders() -> None:
    line = next(line for line in PAGE.splitlines() if "Imports only go down" in line)
    named = set(re.findall(r"\w+", line.partition(":")[2]))
    modules = {"errors", "units"}
    assert named - modules == _folders(ROOT / "optaned") - {"testing"}
    assert modules <= named


def test_the_dependencies_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {_name(line) for line in (*project["dependencies"], *extras["llama"], *extras["demo"])}
    rows = re.findall(r"^\| ([a-z].*?) \|", PAGE.partition("## Dependencies")[2], re.MULTILINE)
    named = {word for row in rows if row != "package" for word in re.sub(r"\(.*?\)", "", row).replace(",", " ").split()}
    assert named == wanted - {"optaned"}


def test_every_dependency_is_imported_by_the_product() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = [path.read_text() for top in ("optaned", "plugins") for path in (ROOT / top).rglob("*.py")]
    for requirement in project["dependencies"]:
        module = _name(requirement).replace("-", "_")
        pattern = re.compile(rf"^\s*(from|import) {module}\b", re.MULTILINE)
        assert any(pattern.search(source) for source in sources), f"nothing imports {module}"


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement, maxsplit=1)[0]
