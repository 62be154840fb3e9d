"""Whether what was staged is what it was made from: whole files by digest, files cut anew tensor by tensor.

Tensors are found through both sides' own headers, so that a wrong header of ours is noticed as much as a wrong byte.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from optaned.errors import ModelFileError
from optaned.index.header import Header, TensorEntry, read_header
from optaned.index.shards import order_shards
from optaned.pipeline.staging.direct import CHUNK_BYTES, File


def check_tensors(sources: Sequence[Header], staged: Sequence[Path], passed: Callable[[int], None]) -> None:
    """Compare every tensor of a model with its staged copy, both read from the medium.

    `passed(size_bytes)` is called between pieces. Raises ModelFileError naming the first tensor that differs.
    """
    copies = order_shards([read_header(path) for path in staged])
    theirs = {tensor.name: (header.path, tensor) for header, tensor in _tensors(copies)}
    ours = list(_tensors(sources))
    if len(theirs) != len(ours):
        raise ModelFileError(f"{staged[0]}: the staged shards hold {len(theirs)} tensors, the model {len(ours)}")
    for header, tensor in ours:
        path, copy = theirs.get(tensor.name, (staged[0], None))
        same_shape = copy is not None and (copy.shape, copy.type) == (tensor.shape, tensor.type)
        if copy is None or not same_shape or _digest(header.path, tensor, passed) != _digest(path, copy, passed):
            raise ModelFileError(
                f"{path}: tensor {tensor.name!r} differs from {header.path}; remove it and stage again"
            )


def _tensors(headers: Sequence[Header]) -> Iterator[tuple[Header, TensorEntry]]:
    return ((header, tensor) for header in headers for tensor in header.tensors)


def _digest(path: Path, tensor: TensorEntry, passed: Callable[[int], None]) -> bytes:
    digest = hashlib.blake2b()
    # Tensors begin anywhere, so these are not direct reads; `forget` has the cache ask the medium anew.
    file = File(path, os.O_RDONLY, direct=False)
    buffer = memoryview(bytearray(min(CHUNK_BYTES, tensor.size_bytes)))
    try:
        os.posix_fadvise(file.fd, tensor.offset, tensor.size_bytes, os.POSIX_FADV_DONTNEED)
        for offset in range(tensor.offset, tensor.end, CHUNK_BYTES):
            length = min(CHUNK_BYTES, tensor.end - offset)
            if file.read(buffer[:length], offset) < length:
                raise ModelFileError(f"{path}: became shorter while it was read; is something still writing it?")
            digest.update(buffer[:length])
            passed(length)
    finally:
        file.close()
    return digest.digest()
