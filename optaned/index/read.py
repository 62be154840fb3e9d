"""Headers to a `ModelIndex`: what the model is, and for every tensor where it lies and who reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optaned.domain.model import ByteRange, Group, ModelIndex, Shard, Tensor
from optaned.errors import ModelFileError
from optaned.index.digest import digest_of
from optaned.index.groups import group_of, is_loose_expert, layer_of
from optaned.index.header import Header, TensorEntry, read_header
from optaned.index.shards import order_shards
from optaned.index.types import FILE_TYPES


def read_index(files: Sequence[Path]) -> ModelIndex:
    """Read the headers of a model's shards, in any order, and return its index.

    Raises MissingFileError or ModelFileError: one line that names the file and what is wrong with it.
    """
    headers = order_shards([read_header(path) for path in files])
    first = headers[0]
    tensors = tuple(_tensor(number, header, entry) for number, header in enumerate(headers) for entry in header.tensors)
    architecture = first.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not tensors:
        raise ModelFileError(f"{first.path}: not a model: it names no architecture or holds no tensors")
    experts = _count(first, f"{architecture}.expert_count")
    _check_experts(headers, tensors, experts)
    return ModelIndex(
        architecture=architecture,
        name=str(first.metadata.get("general.name", "")),
        shards=tuple(Shard(h.path, h.size_bytes, h.data_offset, h.path.resolve()) for h in headers),
        tensors=tensors,
        digest=digest_of(headers),
        layers=_count(first, f"{architecture}.block_count") or 1 + max((t.layer or 0 for t in tensors), default=0),
        expert_count=experts,
        expert_used_count=_count(first, f"{architecture}.expert_used_count"),
        trained_context=_count(first, f"{architecture}.context_length"),
        quantization=_quantization(first, tensors),
        metadata=first.metadata,
    )


def _tensor(number: int, header: Header, entry: TensorEntry) -> Tensor:
    if is_loose_expert(entry.name):
        raise ModelFileError(f"{header.path}: its experts are not fused ({entry.name}); convert the model anew")
    place = ByteRange(number, entry.offset, entry.size_bytes)
    return Tensor(entry.name, entry.shape, entry.type, place, layer_of(entry.name), group_of(entry.name))


def _count(header: Header, key: str) -> int:
    """Return a count, the largest where each layer has its own; 0 where there is none."""
    value: Any = header.metadata.get(key, 0)
    value = max(value, default=0) if isinstance(value, tuple) else value
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ModelFileError(f"{header.path}: corrupt: {key} is {value!r}; fetch it again")
    return value


def _check_experts(headers: Sequence[Header], tensors: Sequence[Tensor], experts: int) -> None:
    for tensor in tensors:
        if tensor.group is Group.EXPERT and tensor.shape[-1] != experts:
            path = headers[tensor.place.shard].path
            raise ModelFileError(
                f"{path}: corrupt: tensor {tensor.name!r} holds {tensor.shape[-1]} experts, the header says {experts}; "
                "fetch it again"
            )


def _quantization(first: Header, tensors: Sequence[Tensor]) -> str:
    """Return what the file says it was quantised to, else the type that most bytes have."""
    stated = FILE_TYPES.get(first.metadata.get("general.file_type", -1))
    if stated is not None:
        return stated
    weight: Counter[str] = Counter()
    for tensor in tensors:
        weight[tensor.type] += tensor.place.size_bytes
    return weight.most_common(1)[0][0]
