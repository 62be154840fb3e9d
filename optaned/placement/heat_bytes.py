"""Heat as bytes and back: versioned, bound to one model by its digest, with a checksum. Knows no file.

Layout, little-endian: magic, version, digest of the model (32 characters), counts, then two float64 arrays, then a
BLAKE2b checksum of all that.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from optaned.errors import ConfigError
from optaned.placement.heat import Heat

MAGIC = b"optaned-heat"
VERSION = 1
_CHECKSUM_BYTES = 16
# version, digest, experts, tokens, weighed tokens, squared tokens, half-life
_HEAD = struct.Struct("<12sI32sQQddd")


def encode_heat(heat: Heat, digest: str) -> bytes:
    """Return the bytes that `decode_heat` reads. `digest` is the model's, at most 32 ASCII characters."""
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        digest.encode("ascii"),
        heat.weight.size,
        heat.tokens,
        heat.weighed_tokens,
        heat.squared_tokens,
        heat.half_life_tokens,
    )
    body = head + heat.weight.astype("<f8").tobytes() + heat.last_used.astype("<f8").tobytes()
    return body + _checksum(body)


def decode_heat(data: bytes, digest: str, experts: int) -> Heat:
    """Return the heat of the model `digest` with `experts` experts in all.

    Raises ConfigError in one line for another model's heat, an unknown version, or bytes that were not written like this.
    """
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise ConfigError("is no heat profile; remove it, and heat is learned anew")
    _, version, owner, count, tokens, weighed, squared, half_life = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ConfigError(f"is a heat profile of version {version}, this program reads version {VERSION}; remove it")
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if len(body) != _HEAD.size + 16 * count or _checksum(body) != checksum:
        raise ConfigError("is damaged; remove it, and heat is learned anew")
    found = owner.rstrip(b"\0").decode("ascii", "replace")
    if found != digest or count != experts:
        raise ConfigError(
            f"belongs to the model with digest {found} ({count} experts), not to {digest} ({experts} experts); "
            "choose another placement.profile or remove it"
        )
    arrays = np.frombuffer(body, dtype="<f8", offset=_HEAD.size).astype(np.float64)
    return Heat(arrays[:count], arrays[count:], weighed, squared, tokens, half_life)


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest()
