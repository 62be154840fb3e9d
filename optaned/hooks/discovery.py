"""Where plugins come from: entry points of installed distributions, and single files in a folder.

Finds and names candidates without importing them, and refuses those that others could have written. Knows no hook.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from optaned.hooks.spec import GUARD_GROUP
from optaned.hooks.trust import core_owners, fault_of_parents, fault_of_tree, first_fault, own_owners

GUARD_FOLDER = "guard"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plugin that could be imported by `load()`, unless `refusal` says why not."""

    name: str
    distribution: str
    load: Callable[[], object]
    refusal: str = ""


def find_installed(group: str, *, trusted_only: bool = False) -> Iterator[Candidate]:
    """Yield a candidate for each entry point of `group`. `trusted_only` refuses code that others could write."""
    for point in importlib.metadata.entry_points(group=group):
        refusal = _refusal(point.module) if trusted_only else ""
        distribution = f"{point.dist.name} {point.dist.version}" if point.dist else ""
        yield Candidate(point.name, distribution, point.load, refusal)


def find_files(folder: Path, group: str, *, trusted_only: bool = False) -> Iterator[Candidate]:
    """Yield a candidate for each `*.py` in `folder`; those of the guard lie in its subfolder `guard`.

    A file is told to be the guard's by where it lies, because the guard may not import others to find out.
    Raises OSError when the folder cannot be read.
    """
    place = folder / GUARD_FOLDER if group == GUARD_GROUP else folder
    if group == GUARD_GROUP and folder.is_dir() and not place.exists():
        return
    owners = core_owners() if trusted_only else own_owners()
    for entry in sorted(place.iterdir()):
        if entry.suffix == ".py" and not entry.name.startswith("_"):
            refusal = _file_refusal(entry, owners, strict=trusted_only)
            yield Candidate(entry.stem, str(entry), lambda path=entry: _load_file(path), refusal)  # type: ignore[misc]


def _file_refusal(path: Path, owners: frozenset[int], *, strict: bool) -> str:
    real = path.resolve()
    cache = real.parent / "__pycache__"  # compiled code in it would be run instead of the file
    paths = [path.parent, real.parent, real, *([cache, *sorted(cache.iterdir())] if cache.is_dir() else [])]
    own = first_fault(paths, owners)
    return own or fault_of_parents(path.absolute(), owners, strict=strict) or ""


def _refusal(module: str) -> str:
    """Look at the code of an entry point without importing it: only its top-level package is searched for."""
    found = importlib.util.find_spec(module.partition(".")[0])
    if found is None or found.origin is None:
        return ""  # the import will say what is wrong with it
    origin = Path(found.origin)
    return fault_of_tree(origin.parent if found.submodule_search_locations else origin, core_owners()) or ""


def _load_file(path: Path) -> ModuleType:
    name = f"optaned_file_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks there for the names in a model's annotations
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
