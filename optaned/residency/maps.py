"""Finds where files are mapped in this process, from the text of /proc/self/maps. Pure; maps nothing itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from optaned.errors import UnavailableError

_OCTAL = re.compile(r"\\([0-7]{3})")
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file that should be mapped: its real path and its inode number, which maps show too."""

    real_path: Path
    inode: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """Bytes `offset` to `offset + size_bytes` of file number `file` lie at `address`. All three are whole pages."""

    file: int
    offset: int
    size_bytes: int
    address: int

    @property
    def end(self) -> int:
        """Return the file offset behind the last byte."""
        return self.offset + self.size_bytes

    def address_of(self, offset: int) -> int:
        """Return where the byte at a file offset lies."""
        return self.address + offset - self.offset


def find_mappings(maps: str, files: Sequence[MappedFile]) -> tuple[Mapping, ...]:
    """Return the files' mappings in the order of files and offsets; neighbours that continue each other are one.

    A file may have several (a library unmaps what holds no tensors) and the first may begin behind its offset 0. Raises
    UnavailableError for a file that is not mapped, was replaced since, or is mapped twice over.
    """
    wanted = {str(file.real_path): number for number, file in enumerate(files)}
    found: list[list[Mapping]] = [[] for _ in files]
    for address, end, offset, inode, path in _lines(maps):
        number = wanted.get(path.removesuffix(_DELETED))
        if number is None:
            continue
        if inode != files[number].inode:
            raise UnavailableError(f"{path}: was replaced after it had been loaded; load the model again")
        found[number].append(Mapping(number, offset, end - address, address))
    for number, file in enumerate(files):
        if not found[number]:
            raise UnavailableError(f"{file.real_path}: is not mapped by the loaded model; load it with mmap")
    return tuple(mapping for number, file in enumerate(files) for mapping in _joined(found[number], file))


def _joined(mappings: Iterable[Mapping], file: MappedFile) -> list[Mapping]:
    joined: list[Mapping] = []
    for mapping in sorted(mappings, key=lambda m: (m.offset, m.address)):
        last = joined[-1] if joined else None
        if last is not None and mapping.offset < last.end:
            raise UnavailableError(f"{file.real_path}: is mapped twice in this process; load the model once")
        if last is not None and mapping.offset == last.end and mapping.address == last.address + last.size_bytes:
            joined[-1] = Mapping(last.file, last.offset, last.size_bytes + mapping.size_bytes, last.address)
        else:
            joined.append(mapping)
    return joined


def _lines(maps: str) -> Iterable[tuple[int, int, int, int, str]]:
    """Yield (address, end, offset, inode, path) of every mapping of a file."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        start, _, end = fields[0].partition("-")
        path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[5])
        yield int(start, 16), int(end, 16), int(fields[2], 16), int(fields[4]), path
