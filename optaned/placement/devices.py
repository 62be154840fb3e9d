"""Which tensors of the trunk a backend places on a device, so that a plan can count them there. Pure.

Follows the library's rule: whole layers from the last one backwards, the output with them, the embeddings never. Routed
experts stay in main memory, where single ones can be moved.
"""

from __future__ import annotations

import re

from optaned.domain.model import Group, ModelIndex
from optaned.domain.tiers import Offload, TierInfo
from optaned.errors import ConfigError
from optaned.units import format_bytes

_OUTPUT = "output"
_EMBEDDINGS = "token_embd.weight"


def offloaded(index: ModelIndex, offload: Offload) -> tuple[int, ...]:
    """Return the numbers of the tensors that go to the device."""
    first = 0 if offload.layers is None else max(0, index.layers - offload.layers)
    keep = [re.compile(pattern) for pattern in offload.keep]
    return tuple(
        number
        for number, tensor in enumerate(index.tensors)
        if tensor.group is Group.TRUNK
        and (tensor.name.startswith(_OUTPUT) if tensor.layer is None else tensor.layer >= first)
        and not any(pattern.search(tensor.name) for pattern in keep)
    )


def placed_on(index: ModelIndex, tier: TierInfo) -> tuple[int, ...]:
    """Return what a device tier takes. Raises ConfigError where that is more than the device has free."""
    if tier.offload is None:
        return ()
    numbers = offloaded(index, tier.offload)
    needed = sum(index.tensors[number].place.size_bytes for number in numbers)
    needed += _second_copy(index) if numbers else 0
    if needed > tier.free_bytes:
        raise ConfigError(
            f"tiers.{tier.name}: {format_bytes(needed)} would be placed on {tier.offload.device}, which has "
            f"{format_bytes(tier.free_bytes)} free; lower `layers`, or name tensors to `keep` in main memory"
        )
    return numbers


def _second_copy(index: ModelIndex) -> int:
    """Return the bytes of the embeddings where they serve as the output too: the device then gets a copy."""
    sizes = {tensor.name: tensor.place.size_bytes for tensor in index.tensors if tensor.layer is None}
    return 0 if f"{_OUTPUT}.weight" in sizes else sizes.get(_EMBEDDINGS, 0)
