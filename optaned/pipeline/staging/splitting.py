"""A model cut into shards anew: recipes whose parts are headers of our own and the tensors' bytes as they lie.

The first shard has all of the model's metadata, each shard its number, their count and the number of tensors, as the format
has it. Metadata entries are copied byte for byte: what we do not understand survives. Reads metadata, no tensor.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from optaned.errors import ModelFileError
from optaned.index.header import Header, TensorEntry
from optaned.index.types import GGML_TYPES
from optaned.pipeline.staging.recipe import Recipe, Stretch
from optaned.pipeline.staging.sources import NUMBERED

MOST_SHARDS = 0xFFFF
_VERSION = 3
_U16, _I32 = 2, 5
_TYPE_NUMBERS = {kind.name: number for number, kind in GGML_TYPES.items()}
_ALIGNMENT = "general.alignment"


@dataclass(frozen=True, slots=True)
class Whole:
    """A model to be cut: its tensors with the file of each, in order, and its metadata entries as bytes."""

    stem: str
    tensors: tuple[tuple[Path, TensorEntry], ...]
    entries: Mapping[str, bytes]
    alignment: int


def whole_of(headers: Sequence[Header]) -> Whole:
    """Return what the ordered shards of one model hold together. Raises ModelFileError where one cannot be read."""
    first = headers[0]
    match = NUMBERED.fullmatch(first.path.name)
    stem = match["stem"] if match else first.path.name.removesuffix(".gguf")
    tensors = tuple((h.path, t) for h in headers for t in sorted(h.tensors, key=lambda each: each.offset))
    try:
        with first.path.open("rb") as file:
            raw = file.read(first.header_bytes)
    except OSError as error:
        raise ModelFileError(f"{first.path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    entries = {key: raw[start:end] for key, (start, end) in first.spans.items() if not key.startswith("split.")}
    return Whole(stem, tensors, entries, int(first.metadata.get(_ALIGNMENT, 32)))


def cut(whole: Whole, pieces: int) -> tuple[Recipe, ...]:
    """Return recipes for about `pieces` shards of about the same size; tensors stay in their order."""
    groups = _groups([entry.size_bytes for _, entry in whole.tensors], pieces)
    bounds = [0, *accumulate(groups)]
    return tuple(
        _recipe(whole, number, len(groups), whole.tensors[bounds[number] : bounds[number + 1]])
        for number in range(len(groups))
    )


def _groups(sizes: Sequence[int], pieces: int) -> list[int]:
    """Return how many tensors go into each shard."""
    limit = max(-(-sum(sizes) // pieces), max(sizes))
    groups, filled = [0], 0
    for size in sizes:
        if groups[-1] and filled + size > limit:
            groups.append(0)
            filled = 0
        groups[-1] += 1
        filled += size
    return groups


def _recipe(whole: Whole, number: int, count: int, tensors: Sequence[tuple[Path, TensorEntry]]) -> Recipe:
    entries = list(whole.entries.values()) if number == 0 else [whole.entries.get(_ALIGNMENT, b"")]
    entries = [entry for entry in entries if entry]
    entries += [_number("split.no", _U16, "H", number), _number("split.count", _U16, "H", count)]
    entries.append(_number("split.tensors.count", _I32, "i", len(whole.tensors)))
    infos, offset = [], 0
    for _, entry in tensors:
        infos.append(_info(entry, offset))
        offset += _up(entry.size_bytes, whole.alignment)
    head = struct.pack("<4sIQQ", b"GGUF", _VERSION, len(tensors), len(entries)) + b"".join((*entries, *infos))
    parts: list[bytes | Stretch] = [head + bytes(_up(len(head), whole.alignment) - len(head))]
    for path, entry in tensors:
        parts.append(Stretch(path, entry.offset, entry.size_bytes))
        if padding := _up(entry.size_bytes, whole.alignment) - entry.size_bytes:
            parts.append(bytes(padding))
    return Recipe(f"{whole.stem}-{number + 1:05}-of-{count:05}.gguf", tuple(parts))


def _number(key: str, kind: int, letter: str, value: int) -> bytes:
    return _text(key) + struct.pack(f"<I{letter}", kind, value)


def _info(entry: TensorEntry, offset: int) -> bytes:
    shape = struct.pack(f"<I{len(entry.shape)}Q", len(entry.shape), *entry.shape)
    return _text(entry.name) + shape + struct.pack("<IQ", _TYPE_NUMBERS[entry.type], offset)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _up(size_bytes: int, alignment: int) -> int:
    return -(-size_bytes // alignment) * alignment
