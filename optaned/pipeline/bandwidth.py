"""Read bandwidth of tiers: measured on request, remembered, and filled in where a tier declares none.

What was measured belongs to a place: a tier of the same name with another mount or node has to be measured anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from optaned.domain.tiers import TierInfo, TierKind
from optaned.errors import AccessError, ConfigError
from optaned.residency.measure import Measuring, measure_direct, measure_mapped, measure_memory

_FILE = "bandwidth.json"


def measure(tier: TierInfo, files: Sequence[Path], how: Measuring) -> TierInfo | str:
    """Return the tier with its measured bandwidth, or why it cannot be measured.

    `files` are model files to read from: for a tier with a mount its largest one there is read.
    """
    if tier.kind is TierKind.DEVICE:
        return "a device's memory is not read from here; declare read_gbps"
    if tier.mount is None:
        return _measured(tier, measure_memory(how, numa_node=tier.numa_node))
    own = [file for file in files if tier.holds(file.resolve())]
    if not own:
        return "no model file lies there to be read; stage a model first, or declare read_gbps"
    largest = max(own, key=lambda file: file.stat().st_size)
    read = measure_mapped if tier.kind is TierKind.BYTE else measure_direct
    return _measured(tier, read(largest, how))


def remember(tiers: Sequence[TierInfo], state_dir: Path) -> Path:
    """Write what was measured and return where. Raises AccessError."""
    path = state_dir / _FILE
    known = _known(path) | {tier.name: {**_place(tier), "read_gbps": tier.read_gbps} for tier in tiers}
    beside = path.with_name(f".{_FILE}.{os.getpid()}")
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(known, indent=2) + "\n")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        reason = (error.strerror or str(error)).lower()
        raise AccessError(f"{path}: cannot be written: {reason}; run this as the service's user") from None
    return path


def with_bandwidth(tiers: Sequence[TierInfo], state_dir: Path) -> tuple[TierInfo, ...]:
    """Return the tiers; those that declare no bandwidth have the one that was measured at their place, if any was."""
    if all(tier.read_gbps is not None for tier in tiers):
        return tuple(tiers)
    known = _known(state_dir / _FILE)
    return tuple(_filled(tier, known.get(tier.name)) for tier in tiers)


def _filled(tier: TierInfo, found: Any) -> TierInfo:
    if tier.read_gbps is not None or not isinstance(found, dict) or _place(tier).items() - found.items():
        return tier
    gbps = found.get("read_gbps")
    return replace(tier, read_gbps=float(gbps)) if isinstance(gbps, int | float) and gbps > 0 else tier


def _measured(tier: TierInfo, gbps: float) -> TierInfo:
    return replace(tier, read_gbps=float(f"{gbps:.3g}"))


def _place(tier: TierInfo) -> dict[str, Any]:
    return {"driver": tier.driver, "numa_node": tier.numa_node, "mount": str(tier.mount) if tier.mount else None}


def _known(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "is damaged").lower()
        raise ConfigError(f"{path}: {reason}; remove it and measure again with: optaned probe --measure") from None
    return known if isinstance(known, dict) else {}
