"""What a token reads of the trunk, and in which order. Knows names of tensors, no tier.

Every tensor of the trunk is read whole, but for the table of token embeddings: a token looks up one row. A model
without an output matrix of its own uses that table as one, and then reads it whole.
"""

from __future__ import annotations

from optaned.domain.model import Group, ModelIndex, Tensor

_EMBEDDINGS = "token_embd.weight"
_OUTPUT = "output.weight"


def read_bytes(index: ModelIndex) -> tuple[int, ...]:
    """Return for each tensor of the index how much of it a token reads; 0 for experts, which the router picks."""
    own_output = any(tensor.name == _OUTPUT for tensor in index.tensors)
    return tuple(_read(tensor, own_output=own_output) for tensor in index.tensors)


def read_order(index: ModelIndex) -> tuple[int, ...]:
    """Return the numbers of the trunk's tensors in the order in which they deserve memory: layer by layer.

    What belongs to no layer (output, norms) comes first, the looked-up embeddings last.
    """
    reads = read_bytes(index)
    trunk = [number for number, tensor in enumerate(index.tensors) if tensor.group is Group.TRUNK]

    def rank(number: int) -> tuple[bool, int, int]:
        tensor = index.tensors[number]
        looked_up = reads[number] < tensor.place.size_bytes
        return looked_up, -1 if tensor.layer is None else tensor.layer, number

    return tuple(sorted(trunk, key=rank))


def _read(tensor: Tensor, *, own_output: bool) -> int:
    if tensor.group is Group.EXPERT:
        return 0
    if tensor.name == _EMBEDDINGS and own_output and len(tensor.shape) > 1:
        return tensor.place.size_bytes // max(1, tensor.shape[-1])
    return tensor.place.size_bytes
