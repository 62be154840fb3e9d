"""Find the model files that a configuration names: wildcards, ~, relative paths, shards over several mounts.

Looks at names only and opens nothing. Knows no key and no plugin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_WILDCARD = re.compile(r"[*?\[]")
_SHARD = re.compile(r".*-(\d{5})-of-\d{5}\.gguf")


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds files for one configuration in the folder `base`; `sysroot` stands before every absolute path."""

    base: Path
    sysroot: Path = Path("/")
    look_for_files: bool = True

    def real(self, path: str | Path) -> Path:
        """Return an absolute path without links."""
        return self._place(str(path)).resolve()

    def find(self, patterns: Sequence[str]) -> tuple[tuple[Path, ...], list[tuple[int, str]]]:
        """Return the files, and (number of the pattern, what is wrong) for those that lead nowhere.

        Shards come in the order of their numbers, whatever mount each lies on; other files as they are written.
        """
        found: dict[Path, None] = {}
        faults = []
        for number, pattern in enumerate(patterns):
            files, fault = self._match(pattern)
            found.update(dict.fromkeys(files))
            if fault:
                faults.append((number, fault))
        files = list(found)
        if all(_SHARD.fullmatch(file.name) for file in files):
            files.sort(key=lambda file: file.name)
        return tuple(files), faults

    def _match(self, pattern: str) -> tuple[list[Path], str]:
        place = self._place(pattern)
        if not self.look_for_files:
            return [place], ""
        if _WILDCARD.search(pattern):
            root = Path(place.anchor)
            files = sorted(file for file in root.glob(str(place.relative_to(root))) if file.is_file())
            return files, "" if files else f"no file matches {pattern!r}; is its file system mounted?"
        if place.is_dir():
            return [], f"{pattern} is a folder; name the .gguf files in it"
        return ([place], "") if place.is_file() else ([], f"no such file: {pattern}")

    def _place(self, text: str) -> Path:
        path = Path(text).expanduser()
        return self.sysroot / str(path).lstrip("/") if path.is_absolute() else self.base / path
