"""The model index: GGUF headers read by ourselves, so that a large vocabulary costs milliseconds."""

from __future__ import annotations

from optaned.index.read import read_index

__all__ = ["read_index"]
