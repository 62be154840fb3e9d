"""Lays private, writable mappings over a model's own, at the same addresses, or leaves everything as it was.

From then on each page can be copied to faster memory and dropped again, while others read it. Nobody ever writes a
different byte. Knows addresses and files; knows no tensor.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from optaned.errors import MissingFileError, OptanedError, UnavailableError
from optaned.residency.faults import explain
from optaned.residency.kernel import MADV_DONTDUMP, Kernel
from optaned.residency.maps import MappedFile, Mapping, find_mappings


class LostMappingError(OptanedError):
    """A mapping could not be put back: the model cannot be read any more, and the process must end."""


def overlay(files: Sequence[Path], kernel: Kernel, maps: Path = Path("/proc/self/maps")) -> tuple[Mapping, ...]:
    """Replace the mappings of a loaded model's files by private ones and return them. Their number stays what it was.

    Raises OptanedError in one line with every mapping as it was before.
    """
    descriptors: list[int] = []
    try:
        descriptors += [_open(file) for file in files]
        found = find_mappings(
            maps.read_text(), [_identity(file, fd) for file, fd in zip(files, descriptors, strict=True)]
        )
        _replace(found, files, descriptors, kernel)
    finally:
        for fd in descriptors:
            os.close(fd)
    return found


def _replace(found: Sequence[Mapping], files: Sequence[Path], descriptors: Sequence[int], kernel: Kernel) -> None:
    for number, mapping in enumerate(found):
        try:
            kernel.map_private(mapping.address, mapping.size_bytes, descriptors[mapping.file], mapping.offset)
        except OSError as error:
            # The one that failed too: a refused MAP_FIXED may have unmapped what was there.
            _restore(found[: number + 1], files, descriptors, kernel)
            raise UnavailableError(f"{files[mapping.file]}: cannot be mapped for moving: {explain(error)}") from None
        # A core dump would otherwise hold every promoted byte. Not worth failing for.
        with suppress(OSError):
            kernel.advise(mapping.address, mapping.size_bytes, MADV_DONTDUMP)


def _restore(mappings: Sequence[Mapping], files: Sequence[Path], descriptors: Sequence[int], kernel: Kernel) -> None:
    for mapping in mappings:
        try:
            kernel.map_shared(mapping.address, mapping.size_bytes, descriptors[mapping.file], mapping.offset)
        except OSError as error:
            raise LostMappingError(f"{files[mapping.file]}: its mapping was lost: {explain(error)}") from None


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise MissingFileError(f"{file}: cannot be opened again: {(error.strerror or str(error)).lower()}") from None


def _identity(file: Path, fd: int) -> MappedFile:
    return MappedFile(file.resolve(), os.fstat(fd).st_ino)
