"""A bounded reader over the first bytes of one file. Knows sizes and strings, but nothing of what they mean.

Every length that a file claims is compared with what is on disk before a byte is read for it, so a lying header costs
one error line and never memory. Reads, not a mapping: a file that someone cuts meanwhile must not raise SIGBUS.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from optaned.errors import ModelFileError
from optaned.units import format_bytes

WINDOW_BYTES = 1 << 20
# Twenty times the longest vocabulary that is known; a header that claims more is a lie that would cost seconds.
HEADER_LIMIT_BYTES = 128 << 20

_LENGTH = struct.Struct("<Q")


class TruncatedFileError(ModelFileError):
    """A file that ends before what its header promises: broken off, or still being fetched.

    `expected_bytes` is how long it has to be, where so much of the header is there.
    """

    def __init__(self, *lines: str, expected_bytes: int | None = None) -> None:
        super().__init__(*lines)
        self.expected_bytes = expected_bytes


class HeaderReader:
    """Reads forward through `file`, whose `size_bytes` are known. `path` is for messages only.

    All methods raise ModelFileError when the file ends before what they were asked for.
    """

    def __init__(self, file: BinaryIO, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.position = 0
        self._file = file
        self._window = b""
        self._start = 0

    def corrupt(self, what: str) -> ModelFileError:
        """Return the error for a header that contradicts itself."""
        return ModelFileError(f"{self.path}: corrupt: {what}; fetch it again")

    def require(self, size_bytes: int) -> None:
        """Raise unless `size_bytes` more bytes can belong to a header."""
        if self.position + size_bytes > self.size_bytes:
            raise TruncatedFileError(
                f"{self.path}: truncated: {format_bytes(self.size_bytes)} on disk, but its header asks for "
                f"{_size(self.position + size_bytes)}; fetch it again"
            )
        if self.position + size_bytes > HEADER_LIMIT_BYTES:
            raise self.corrupt(f"its header claims to be longer than {format_bytes(HEADER_LIMIT_BYTES)}")

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the next values of this layout."""
        index = self._load(layout.size)
        self.position += layout.size
        return layout.unpack_from(self._window, index)

    def string(self) -> bytes:
        """Return the next string: a 64-bit length and that many bytes."""
        (length,) = self.unpack(_LENGTH)
        index = self._load(length)
        self.position += length
        return self._window[index : index + length]

    def skip(self, size_bytes: int) -> None:
        """Step over bytes without reading them."""
        self.require(size_bytes)
        self.position += size_bytes

    def skip_strings(self, count: int) -> None:
        """Step over `count` strings: 160,000 tokens of a vocabulary take 20 ms, making Python strings of them 100."""
        self.require(count * _LENGTH.size)
        unpack, window, start, position = _LENGTH.unpack_from, self._window, self._start, self.position
        last = start + len(window) - _LENGTH.size
        for _ in range(count):
            if position > last:
                self.position = position
                self._load(_LENGTH.size)
                window, start = self._window, self._start
                last = start + len(window) - _LENGTH.size
            position += _LENGTH.size + unpack(window, position - start)[0]
        self.position = position
        self.require(0)

    def _load(self, size_bytes: int) -> int:
        """Have the next `size_bytes` in the window and return where they begin there."""
        self.require(size_bytes)
        index = self.position - self._start
        if index < 0 or index + size_bytes > len(self._window):
            self._file.seek(self.position)
            self._window = self._file.read(max(size_bytes, WINDOW_BYTES))
            self._start = self.position
            index = 0
            if len(self._window) < size_bytes:
                raise ModelFileError(f"{self.path}: became shorter while it was read; is something still writing it?")
        return index


def _size(size_bytes: int) -> str:
    return format_bytes(size_bytes) if size_bytes < 1 << 50 else "more than any disk holds"
