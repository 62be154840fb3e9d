"""The shards that are to be staged: which are whole, which are still being fetched, which have not begun.

Reads headers. A shard is whole when its file is as long as its header says and has no holes: downloaders that reserve the
whole length first leave holes until the bytes have come. Knows no destination.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from optaned.errors import MissingFileError, UsageError
from optaned.index.header import Header, read_header
from optaned.index.reading import TruncatedFileError
from optaned.units import format_bytes

NUMBERED = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
# What a downloader lays beside a file that it has not finished.
_UNFINISHED = (".aria2", ".st", ".part", ".incomplete")


@dataclass(frozen=True, slots=True)
class Source:
    """One shard. `waits` says why it cannot be staged yet; then `header` is None and `size_bytes` may be a guess."""

    path: Path
    size_bytes: int
    header: Header | None = None
    waits: str = ""
    there_bytes: int = 0

    @property
    def name(self) -> str:
        return self.path.name


def find_sources(arguments: Sequence[Path], *, total_bytes: int | None = None) -> tuple[Source, ...]:
    """Return the shards of files and folders, and those of the same models that are still missing, by name.

    `total_bytes` is how large the whole model will be, for guessing missing shards; else they count as large as the
    largest that is known. Raises MissingFileError, ModelFileError or UsageError: one line each.
    """
    found: dict[str, Source] = {}
    for path in _files(arguments):
        if path.name in found:
            raise UsageError(f"{path}: {found[path.name].path} has the same name; stage one of them")
        found[path.name] = _look(path)
    known = [source.size_bytes for source in found.values() if source.size_bytes]
    guess = max(known, default=0)
    if total_bytes is not None:
        missing = len(_shard_names(found)) - len(known)
        guess = max(0, total_bytes - sum(known)) // max(1, missing)
    folder = next(iter(found.values())).path.parent
    for name in _shard_names(found):
        source = found.get(name) or Source(folder / name, 0, waits="not there yet")
        found[name] = (
            source if source.size_bytes else Source(source.path, guess, None, source.waits, source.there_bytes)
        )
    return tuple(found[name] for name in sorted(found))


def _files(arguments: Sequence[Path]) -> Iterable[Path]:
    for argument in arguments:
        if not argument.is_dir():
            yield argument.absolute()
            continue
        inside = sorted(path for path in argument.absolute().glob("*.gguf") if path.is_file())
        if not inside:
            raise MissingFileError(f"{argument}: holds no .gguf files; name the folder that the shards lie in")
        yield from inside


def _shard_names(found: Iterable[str]) -> list[str]:
    """Return the names of all shards of every model of which one shard is named, in order, and those of other files."""
    names = set()
    for name in found:
        match = NUMBERED.fullmatch(name)
        count = int(match["count"]) if match else 0
        names |= {f"{match['stem']}-{n + 1:05}-of-{count:05}.gguf" for n in range(count)} if match else {name}
    return sorted(names)


def _look(path: Path) -> Source:
    try:
        header = read_header(path)
    except MissingFileError:
        if NUMBERED.fullmatch(path.name) is None:
            raise MissingFileError(f"{path}: no such file; name a model's .gguf files, or their folder") from None
        return Source(path, 0, waits="not there yet")
    except TruncatedFileError as error:
        there = path.stat().st_size
        of = f" of {format_bytes(error.expected_bytes)}" if error.expected_bytes else ""
        waits = f"{format_bytes(there)}{of} are there"
        return Source(path, error.expected_bytes or 0, waits=waits, there_bytes=there)
    waits = _unfinished(path, header.size_bytes)
    return Source(path, header.size_bytes, None if waits else header, waits, header.size_bytes)


def _unfinished(path: Path, size_bytes: int) -> str:
    beside = next((path.name + end for end in _UNFINISHED if path.with_name(path.name + end).exists()), None)
    if beside:
        return f"{beside} lies beside it, so something is still fetching it"
    with path.open("rb") as file:
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
    return "" if hole >= size_bytes else f"it has a hole at byte {hole}, so something is still fetching it"
