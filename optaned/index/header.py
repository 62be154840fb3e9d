"""The header of one GGUF file: scalars, short arrays of numbers, and where each tensor lies. Reads no tensor's data.

Knows the layout of GGUF versions 2 and 3, little-endian. Knows no meaning of a key but `general.alignment`, and nothing
of other shards. Long arrays (vocabularies, merges) are stepped over.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from optaned.errors import MissingFileError, ModelFileError
from optaned.index.reading import HeaderReader, TruncatedFileError
from optaned.index.types import GGML_TYPES
from optaned.units import format_bytes

# Head counts and widths of layers come as arrays; nothing that a planner reads is longer than the deepest model.
KEPT_ARRAY = 4096
MAX_DIMENSIONS = 4

_SCALARS = {
    kind: struct.Struct("<" + letter)
    for kind, letter in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_STRING, _ARRAY = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_START = struct.Struct("<4sI")
_COUNTS = struct.Struct("<QQ")
_ARRAY_START = struct.Struct("<IQ")
_PLACE = struct.Struct("<IQ")
# The shortest that an entry can be; counts are held against what is left of the file.
_SHORTEST_KEY, _SHORTEST_TENSOR = 8 + 4 + 1, 8 + 4 + 8 + 12


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor as its header describes it; `offset` counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """One file's header. `header_bytes` is its exact length, `data_offset` that rounded up to the file's alignment.

    `spans` says where each key's entry begins and ends in the file, for who writes a header anew.
    """

    path: Path
    size_bytes: int
    header_bytes: int
    data_offset: int
    metadata: Mapping[str, Any]
    tensors: tuple[TensorEntry, ...]
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def read_header(path: Path) -> Header:
    """Read and check one GGUF file's header.

    Raises MissingFileError, or ModelFileError for a file that is truncated, corrupt or of an unknown kind.
    """
    try:
        with path.open("rb") as file:
            return _parse(HeaderReader(file, path, os.fstat(file.fileno()).st_size))
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such model file; check `files` of the model") from None
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def _parse(reader: HeaderReader) -> Header:
    tensor_count = _start(reader)
    metadata, spans = _metadata(reader, reader.unpack(_U64)[0])
    raw = _tensors(reader, tensor_count)
    alignment = _alignment(reader, metadata)
    data_offset = -(-reader.position // alignment) * alignment
    tensors = tuple(_place(reader, entry, data_offset, alignment) for entry in raw)
    _check_ends(reader, tensors)
    return Header(reader.path, reader.size_bytes, reader.position, data_offset, metadata, tensors, spans)


def _start(reader: HeaderReader) -> int:
    if reader.size_bytes < _START.size:
        raise TruncatedFileError(f"{reader.path}: truncated: {reader.size_bytes} B on disk; fetch it again")
    magic, version = reader.unpack(_START)
    if magic != b"GGUF":
        raise ModelFileError(f"{reader.path}: not a GGUF file: it begins with {magic!r}; is it the right file?")
    if version in (0x02000000, 0x03000000):
        raise ModelFileError(f"{reader.path}: a big-endian GGUF file; fetch the little-endian one")
    if version not in (2, 3):
        raise ModelFileError(f"{reader.path}: GGUF version {version}; only 2 and 3 are known, convert it anew")
    (count,) = reader.unpack(_U64)
    return int(count)


def _metadata(reader: HeaderReader, count: int) -> tuple[dict[str, Any], dict[str, tuple[int, int]]]:
    """Return the values that are kept, and where each entry lies, those of values that were stepped over too."""
    reader.require(count * _SHORTEST_KEY)
    metadata: dict[str, Any] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(count):
        start = reader.position
        key = _name(reader, "key")
        if key in spans:
            raise reader.corrupt(f"key {key!r} appears twice")
        metadata[key] = _value(reader, reader.unpack(_U32)[0], key)
        spans[key] = (start, reader.position)
    return {key: value for key, value in metadata.items() if value is not None}, spans


def _value(reader: HeaderReader, kind: int, key: str) -> Any:
    """Return a scalar, a tuple of numbers, or None for an array that was stepped over."""
    if kind in _SCALARS:
        return reader.unpack(_SCALARS[kind])[0]
    if kind == _STRING:
        return reader.string().decode("utf-8", "replace")
    if kind != _ARRAY:
        raise reader.corrupt(f"key {key!r} has the unknown type {kind}")
    kind, count = reader.unpack(_ARRAY_START)
    if kind == _STRING:
        reader.skip_strings(count)
        return None
    if kind not in _SCALARS:
        raise reader.corrupt(f"key {key!r} is an array of the unknown type {kind}")
    if count > KEPT_ARRAY:
        reader.skip(count * _SCALARS[kind].size)
        return None
    return reader.unpack(struct.Struct(f"<{count}{_SCALARS[kind].format[1:]}"))


def _tensors(reader: HeaderReader, count: int) -> list[TensorEntry]:
    """Return the entries with offsets as written: from the start of the data."""
    reader.require(count * _SHORTEST_TENSOR)
    return [_tensor(reader) for _ in range(count)]


def _tensor(reader: HeaderReader) -> TensorEntry:
    name = _name(reader, "tensor")
    (dimensions,) = reader.unpack(_U32)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise reader.corrupt(f"tensor {name!r} has {dimensions} dimensions")
    shape = reader.unpack(struct.Struct(f"<{dimensions}Q"))
    kind, offset = reader.unpack(_PLACE)
    stored = GGML_TYPES.get(kind)
    if stored is None:
        raise ModelFileError(f"{reader.path}: tensor {name!r} has the unknown type {kind}; a newer optaned may know it")
    elements = math.prod(shape)
    if elements == 0 or elements >= 1 << 62 or shape[0] % stored.block:
        raise reader.corrupt(f"tensor {name!r} has the shape {shape}, which {stored.name} cannot have")
    return TensorEntry(name, shape, stored.name, offset, elements // stored.block * stored.size_bytes)


def _name(reader: HeaderReader, what: str) -> str:
    raw = reader.string()
    if len(raw) > 0xFFFF:
        raise reader.corrupt(f"the name of a {what} is {len(raw)} bytes long")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise reader.corrupt(f"the name of a {what} is not text") from None


def _alignment(reader: HeaderReader, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 30 or alignment & (alignment - 1):
        raise reader.corrupt(f"general.alignment is {alignment!r}, not a power of two")
    return alignment


def _place(reader: HeaderReader, entry: TensorEntry, data_offset: int, alignment: int) -> TensorEntry:
    if entry.offset % alignment:
        raise reader.corrupt(f"tensor {entry.name!r} is not aligned to {alignment} bytes")
    return TensorEntry(entry.name, entry.shape, entry.type, data_offset + entry.offset, entry.size_bytes)


def _check_ends(reader: HeaderReader, tensors: tuple[TensorEntry, ...]) -> None:
    """Refuse tensors that share bytes, or that end behind the file's end: the one sign of a download that broke off."""
    ordered = sorted(tensors, key=lambda t: t.offset)
    for before, after in pairwise(ordered):
        if before.end > after.offset:
            raise reader.corrupt(f"tensors {before.name!r} and {after.name!r} share bytes")
    end = ordered[-1].end if ordered else 0
    if end > reader.size_bytes:
        raise TruncatedFileError(truncated_line(reader.path, reader.size_bytes, end), expected_bytes=end)


def truncated_line(path: Path, on_disk: int, expected: int) -> str:
    """Return the line for a file that is too short, with sizes that differ as they are printed."""
    sizes = (format_bytes(on_disk), format_bytes(expected))
    if sizes[0] == sizes[1]:
        sizes = (f"{on_disk} B", f"{expected} B")
    return f"{path}: truncated: {sizes[0]} on disk, header says {sizes[1]}; fetch it again"
