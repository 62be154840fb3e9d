"""Heat that was saved, looked up for the model that is planned."""

from __future__ import annotations

from pathlib import Path

from optaned.domain.model import ModelIndex
from optaned.pipeline.stage import stage
from optaned.placement.heat import Heat
from optaned.residency.heat_file import heat_path, read_heat


def saved_heat(state_dir: Path, index: ModelIndex, profile: str) -> tuple[Path | None, Heat | None]:
    """Return where a model's heat is kept and what was saved there; None, None for a model without experts.

    Raises OptanedError for another model's heat, a damaged file, or a profile's name that is no file name.
    """
    if not index.expert_layers:
        return None, None
    with stage("plan", "heat"):
        path = heat_path(state_dir, index.digest, profile)
        return path, read_heat(path, digest=index.digest, experts=len(index.expert_layers) * index.expert_count)
