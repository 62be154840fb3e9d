"""What a tensor's name says: its layer, and whether the router picks it (expert) or every token reads it (trunk)."""

from __future__ import annotations

import re

from optaned.domain.model import Group

_LAYER = re.compile(r"blk\.(\d{1,6})\.")
_FUSED_EXPERTS = re.compile(r"blk\.\d+\.\w+_exps(\.\w+)?")
_LOOSE_EXPERT = re.compile(r"blk\.\d+\.ffn_(gate|up|down)\.\d+\.\w+")


def layer_of(name: str) -> int | None:
    """Return the layer number in a tensor's name, or None."""
    match = _LAYER.match(name)
    return int(match[1]) if match else None


def group_of(name: str) -> Group:
    """Return EXPERT for a layer's fused routed experts (`*_exps.*`); all else, shared experts too, is TRUNK."""
    return Group.EXPERT if _FUSED_EXPERTS.fullmatch(name) else Group.TRUNK


def is_loose_expert(name: str) -> bool:
    """Say whether this is one expert in a tensor of its own, as files from before fused experts had them."""
    return _LOOSE_EXPERT.fullmatch(name) is not None
