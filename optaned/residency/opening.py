"""Makes the pages of a model that was just loaded movable, in one call: checks, overlay, first faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from optaned.residency.kernel import Kernel, LinuxKernel
from optaned.residency.overlay import overlay
from optaned.residency.pace import Pace
from optaned.residency.pages import ModelPages
from optaned.residency.preflight import check_overcommit, check_populate

# Measured on two cores: see `promote_gbps` of bench/residency.py. More threads than memory channels gain nothing.
DEFAULT_WORKERS = 2


def open_pages(
    files: Sequence[Path],
    *,
    in_place: Sequence[bool],
    pace: Pace | None = None,
    workers: int = DEFAULT_WORKERS,
    kernel: Kernel | None = None,
) -> ModelPages:
    """Return the movable pages of loaded files, given in the index's order; close them before the model is freed.

    `in_place` says of each file that its home is byte-addressable: all its bytes are mapped now, not by the first tokens.
    Raises OptanedError in one line with the model's mappings as they were.
    """
    kernel = kernel or LinuxKernel()
    check_overcommit()
    check_populate()
    pages = ModelPages(overlay(files, kernel), kernel, in_place=in_place, pace=pace, workers=workers)
    pages.settle()
    return pages
