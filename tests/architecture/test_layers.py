"""The import rules that keep optaned a pipeline. Read LAYERS as the architecture, top to bottom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A module imports its own layer or a lower one; names that share a layer are siblings and do not know each other.
LAYERS: list[set[str]] = [
    {"cli"},
    {"server", "guard"},
    {"pipeline"},
    {"engine", "jobs"},
    {"residency"},
    {"system"},
    {"config"},
    {"hooks"},
    {"placement", "thermal"},
    {"index"},
    {"domain"},
    {"errors", "units"},
]
OUTSIDE = {"__init__", "api", "testing"}  # api re-exports; testing is the public kit, checked below
# A server that starts its own guard only runs a command; cli joins the two.
PURE_FOLDERS = ("optaned.domain", "optaned.placement", "optaned.thermal")
IMPURE = {
    "os",
    "time",
    "socket",
    "subprocess",
    "asyncio",
    "threading",
    "logging",
    "random",
    "shutil",
    "tempfile",
    "mmap",
}
TESTING_MAY = {
    "api",
    "domain",
    "errors",
    "units",
    "index",
    "placement",
    "thermal",
    "hooks",
    "engine",
    "server",
    "testing",
}

# library -> the only places that may import it
HOMES = {
    "tomli": ("optaned.config.load",),
    "pluggy": ("optaned.hooks",),
    "sdnotify": ("optaned.system",),
    "llama_cpp": ("optaned_llamacpp",),
    "sqlite3": ("optaned.jobs",),
    "msgspec": ("optaned.engine", "optaned.server"),
    "starlette": ("optaned.server",),
    "uvicorn": ("optaned.server",),
    "jinja2": ("optaned_chat",),
    "prometheus_client": ("optaned.server",),
    "gguf": ("optaned.testing",),
    "ctypes": ("optaned.system", "optaned.residency", "optaned_llamacpp"),
    "click": ("optaned.cli",),
    "rich": ("optaned.cli",),
    "httpx2": ("optaned.cli",),
}


def modules(base: Path, top: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((base / top).rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute module) for every import, those inside functions and TYPE_CHECKING included."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            stem = ".".join(filter(None, (base, node.module)))
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


CORE = list(modules(ROOT, "optaned"))
OURS = {folder.name for folder in (ROOT / "plugins").iterdir() if (folder / "__init__.py").exists()}
PLUGINS = [module for folder in sorted(OURS) for module in modules(ROOT / "plugins", folder)]


def ids(value: object) -> str:
    return value if isinstance(value, str) else ""


def folder_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "optaned" and len(parts) > 1 else None


def depth(folder: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if folder in layer)


def is_layer(folder: str | None) -> bool:
    return any(folder in layer for layer in LAYERS)


def test_every_top_level_module_has_a_layer() -> None:
    found = {p.stem for p in (ROOT / "optaned").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert found - set().union(*LAYERS) == OUTSIDE


@pytest.mark.parametrize(("name", "path"), CORE, ids=ids)
def test_core_imports_only_downwards(name: str, path: Path) -> None:
    mine = folder_of(name)
    if mine is None or not is_layer(mine):
        return
    for line, target in imports(path, name):
        theirs = folder_of(target)
        assert theirs != "testing", f"{path}:{line}: product code imports the test kit"
        if theirs is None or theirs == mine or not is_layer(theirs):
            continue
        assert depth(theirs) >= depth(mine), f"{path}:{line}: {mine} may not import {theirs}"
        siblings = depth(theirs) == depth(mine) and theirs not in ("errors", "units")
        assert not siblings, f"{path}:{line}: {mine} and {theirs} are siblings"


@pytest.mark.parametrize(("name", "path"), [m for m in CORE if folder_of(m[0]) == "testing"], ids=ids)
def test_the_test_kit_stays_clear_of_processes_and_configuration(name: str, path: Path) -> None:
    for line, target in imports(path, name):
        theirs = folder_of(target)
        assert theirs is None or theirs in TESTING_MAY, f"{path}:{line}: testing may not import {target}"


@pytest.mark.parametrize(("name", "path"), CORE, ids=ids)
def test_core_never_imports_a_plugin(name: str, path: Path) -> None:
    for line, target in imports(path, name):
        assert target.split(".")[0] not in OURS, f"{path}:{line}: the core imports plugin {target}"


def test_core_never_names_a_plugin_module() -> None:
    for _, path in CORE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in OURS:
                pytest.fail(f"{path}:{node.lineno}: the core names plugin {node.value}")


@pytest.mark.parametrize(("name", "path"), PLUGINS, ids=ids)
def test_plugins_use_only_the_public_api(name: str, path: Path) -> None:
    own = name.split(".")[0]
    for line, target in imports(path, name):
        head = target.split(".")[0]
        assert head not in OURS - {own}, f"{path}:{line}: {own} imports plugin {head}"
        if head == "optaned":
            assert target.startswith("optaned.api"), f"{path}:{line}: not public: {target}"


@pytest.mark.parametrize(("name", "path"), [m for m in CORE if m[0].startswith(PURE_FOLDERS)], ids=ids)
def test_pure_modules_have_no_clock_disk_or_log(name: str, path: Path) -> None:
    for line, target in imports(path, name):
        assert target.split(".")[0] not in IMPURE, f"{path}:{line}: {name} is pure, yet imports {target}"


@pytest.mark.parametrize(("name", "path"), CORE + PLUGINS, ids=ids)
def test_third_party_libraries_are_imported_in_one_place(name: str, path: Path) -> None:
    for line, target in imports(path, name):
        homes = HOMES.get(target.split(".")[0])
        assert homes is None or name.startswith(homes), (
            f"{path}:{line}: {name} imports {target}, which belongs to {homes}"
        )
