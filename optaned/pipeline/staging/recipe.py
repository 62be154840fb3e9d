"""What a staged file is made of: stretches of source files and headers of our own. Knows no file's contents."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes `offset` to `offset + size_bytes` of a file."""

    path: Path
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """A file to be written under `name`: its parts, one after another."""

    name: str
    parts: tuple[bytes | Stretch, ...]

    @property
    def size_bytes(self) -> int:
        return sum(len(part) if isinstance(part, bytes) else part.size_bytes for part in self.parts)

    @property
    def sources(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(part.path for part in self.parts if isinstance(part, Stretch)))

    @property
    def whole(self) -> Path | None:
        """Return the source that is copied as it is, or None for a file that is put together."""
        first = self.parts[0] if len(self.parts) == 1 else None
        return first.path if isinstance(first, Stretch) and first.offset == 0 else None


def copy_of(path: Path, size_bytes: int) -> Recipe:
    """Return the recipe of a plain copy."""
    return Recipe(path.name, (Stretch(path, 0, size_bytes),))


def identity_of(recipe: Recipe) -> str:
    """Name what a recipe would produce now: another source, or one that was written to since, has another name.

    Raises FileNotFoundError when a source is gone.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in recipe.sources:
        stat = path.stat()
        digest.update(f"{path.resolve()}\0{stat.st_size} {stat.st_mtime_ns};".encode(errors="surrogateescape"))
    for part in recipe.parts:
        digest.update(
            part if isinstance(part, bytes) else f"{part.path.name} {part.offset} {part.size_bytes};".encode()
        )
    return digest.hexdigest()
