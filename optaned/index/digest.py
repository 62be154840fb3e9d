"""A name for a model's content that costs milliseconds: headers, sizes, and fixed sampled blocks of each shard.

Hashing 610 GB at every start would take an hour and heat the DIMMs for it. Two downloads of one model agree, wherever
they lie; a changed header, a changed size, or a change that touches a sampled block gives another digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import BinaryIO

from optaned.errors import ModelFileError
from optaned.index.header import Header

SAMPLES = 16
BLOCK_BYTES = 4096
DIGEST_BYTES = 16
_CHUNK_BYTES = 1 << 20


def digest_of(shards: Sequence[Header]) -> str:
    """Return 32 hexadecimal digits for these shards, in order. Raises ModelFileError when a shard cannot be read."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for shard in shards:
        digest.update(f"{shard.size_bytes} {shard.header_bytes};".encode())
        try:
            with shard.path.open("rb") as file:
                _feed_header(digest, file, shard.header_bytes)
                for offset in sample_offsets(shard.data_offset, shard.size_bytes):
                    file.seek(offset)
                    digest.update(file.read(BLOCK_BYTES))
        except OSError as error:
            raise ModelFileError(f"{shard.path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    return digest.hexdigest()


def sample_offsets(start: int, end: int) -> list[int]:
    """Return where to sample: evenly spread, the first and the last block among them."""
    room = end - start - BLOCK_BYTES
    if room <= 0:
        return [start] if end > start else []
    return sorted({start + room * i // (SAMPLES - 1) for i in range(SAMPLES)})


def _feed_header(digest: hashlib.blake2b, file: BinaryIO, size_bytes: int) -> None:
    while size_bytes and (chunk := file.read(min(size_bytes, _CHUNK_BYTES))):
        digest.update(chunk)
        size_bytes -= len(chunk)
