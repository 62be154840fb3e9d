"""What statx says of a file beyond `os.stat`: whether its bytes are reached in place. Knows no mount option."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_AT_FDCWD = -100
_STRUCT_BYTES = 256
# Offsets in struct statx, the same on every architecture.
_ATTRIBUTES, _KNOWN_ATTRIBUTES = 8, 56
_ATTR_DAX = 0x0020_0000


def is_dax(file: Path) -> bool | None:
    """Say whether a regular file is mapped without page cache (DAX); None before Linux 5.8, which does not say.

    A folder never is, also where its files are. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.create_string_buffer(_STRUCT_BYTES)
    if libc.statx(_AT_FDCWD, os.fsencode(file), 0, 0, answer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(file))
    said, known = (int.from_bytes(answer.raw[at : at + 8], "little") for at in (_ATTRIBUTES, _KNOWN_ATTRIBUTES))
    return bool(said & _ATTR_DAX) if known & _ATTR_DAX else None
