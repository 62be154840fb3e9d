"""What an engine's environment needs so that loading from a block home reads only headers. Knows the preloaded library.

The parent asks and starts the engine with it: a library can be preloaded only when a process starts.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from optaned.errors import MissingFileError, UnavailableError

_FILES = "OPTANED_UNREAD_FILES"
_PRELOAD = "LD_PRELOAD"


def library() -> Path | None:
    """Return the library to preload, None where it was not built."""
    found = importlib.util.find_spec("optaned.residency._nopopulate")
    return None if found is None or found.origin is None else Path(found.origin)


def environment(files: Sequence[Path], inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that keep a model library from reading these files whole while it maps them.

    `inherited` is the environment that they are added to (our own for None). Raises MissingFileError, and UnavailableError
    where the library was not built or lies at a path that cannot be said to the loader.
    """
    preloaded = library()
    if preloaded is None:
        raise UnavailableError(
            "loading would read the whole model: the native parts were not built; install a C compiler and reinstall optaned"
        )
    if any(separator in str(preloaded) for separator in " :"):
        raise UnavailableError(
            f"{preloaded}: a path with a space or colon cannot be preloaded; install optaned elsewhere"
        )
    before = (os.environ if inherited is None else inherited).get(_PRELOAD, "")
    return {
        _PRELOAD: " ".join(filter(None, (str(preloaded), before))),
        _FILES: ",".join(_identity(file) for file in files),
    }


def _identity(file: Path) -> str:
    try:
        found = file.stat()
    except OSError as error:
        raise MissingFileError(f"{file}: {error.strerror}; check the model's `files`") from None
    return f"{found.st_dev}:{found.st_ino}"
