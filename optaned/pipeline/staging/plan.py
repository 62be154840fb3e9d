"""What is to be done, decided before anything is written: which file comes from where, goes where, and what waits.

Reads headers and file sizes. Knows nothing of how bytes are copied.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optaned.errors import ModelFileError, UnavailableError
from optaned.index.digest import digest_of
from optaned.index.header import Header, read_header
from optaned.index.shards import order_shards
from optaned.pipeline.staging.assign import Assigned, Parcel, assign
from optaned.pipeline.staging.copying import part_path
from optaned.pipeline.staging.recipe import Recipe, copy_of
from optaned.pipeline.staging.sources import Source
from optaned.pipeline.staging.splitting import MOST_SHARDS, Whole, cut, whole_of
from optaned.pipeline.staging.targets import Target


class Doing(enum.StrEnum):
    """What becomes of one file."""

    COPY = "copy"
    GO_ON = "go on"
    RENAME = "rename"
    THERE = "there"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Job:
    """One file of the staged model. A job that waits has no recipe; `note` says why, or how far a former copy came."""

    name: str
    size_bytes: int
    target: Target
    doing: Doing
    recipe: Recipe | None = None
    note: str = ""

    @property
    def path(self) -> Path:
        return self.target.folder / self.name


@dataclass(frozen=True, slots=True)
class StagePlan:
    """All jobs in the order of their names. `resplit` holds the sources' headers when the model is cut anew."""

    jobs: tuple[Job, ...]
    resplit: tuple[Header, ...] = ()

    @property
    def todo(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.doing is not Doing.WAIT)

    @property
    def waiting(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.doing is Doing.WAIT)


def plan_staging(
    sources: Sequence[Source], targets: Sequence[Target], *, resplit: bool = False, move: bool = False
) -> StagePlan:
    """Decide where each shard goes. Raises UnavailableError (no room) or ModelFileError, a line a fault."""
    parcels = [_parcel(source, targets, move=move) for source in sources]
    assigned = assign(parcels, [target.room for target in targets])
    fewer = len(sources) < len(targets)
    if resplit and (assigned.faults or fewer) and not _all_placed(parcels):
        return _cut_anew(sources, targets)
    if assigned.faults:
        raise UnavailableError(*assigned.faults)
    by_name = {target.name: target for target in targets}
    chosen = {source.name: by_name[assigned.places[source.name]] for source in sources}
    return StagePlan(tuple(_job(source, chosen[source.name], move=move) for source in sources))


def _all_placed(parcels: Sequence[Parcel]) -> bool:
    return all(parcel.at is not None for parcel in parcels)


def _parcel(source: Source, targets: Sequence[Target], *, move: bool) -> Parcel:
    """Say what a shard needs; what lies in one of the targets already, in whole or in part, stays in it."""
    lying = _lying(source.name, source.size_bytes, targets)
    if lying.at is None and move and source.header is not None:
        # Where it may stay on its own file system it is renamed, which takes no room.
        return Parcel(source.name, source.size_bytes, None, source.path.stat().st_dev, source.size_bytes)
    return lying


def _lying(name: str, size_bytes: int, targets: Sequence[Target]) -> Parcel:
    for target in targets:
        for path in (target.folder / name, part_path(target.folder, name)):
            if path.exists():
                return Parcel(name, size_bytes, target.name, target.device, min(_allocated(path), size_bytes))
    return Parcel(name, size_bytes)


def _allocated(path: Path) -> int:
    """Return the bytes that a file takes of its file system; one that was reserved for a copy takes all of them."""
    return path.stat().st_blocks * 512


def _job(source: Source, target: Target, *, move: bool) -> Job:
    path = target.folder / source.name
    if source.header is None:
        return Job(source.name, source.size_bytes, target, Doing.WAIT, note=source.waits)
    recipe = copy_of(source.path, source.size_bytes)
    if path.exists():
        _check_same(source, path)
        return Job(source.name, source.size_bytes, target, Doing.THERE, recipe)
    if move and source.path.stat().st_dev == target.device:
        return Job(source.name, source.size_bytes, target, Doing.RENAME, recipe)
    doing = Doing.GO_ON if part_path(target.folder, source.name).exists() else Doing.COPY
    return Job(source.name, source.size_bytes, target, doing, recipe)


def _check_same(source: Source, path: Path) -> None:
    """Refuse to take another file of the same name for this shard: header, size and sampled blocks must agree."""
    if source.header is None or path.samefile(source.path):
        return
    try:
        same = digest_of([read_header(path)]) == digest_of([source.header])
    except ModelFileError:
        same = False
    if not same:
        raise ModelFileError(f"{path}: lies there already and differs from {source.path}; remove one of them")


def _cut_anew(sources: Sequence[Source], targets: Sequence[Target]) -> StagePlan:
    """Cut the whole model into as few shards as will fit, at least one a target."""
    waiting = [source for source in sources if source.header is None]
    if waiting:
        lines = (f"{s.path}: {s.waits}; a model can be cut anew only when all its shards are there" for s in waiting)
        raise UnavailableError(*lines)
    headers = order_shards([source.header for source in sources if source.header])
    whole = whole_of(headers)
    recipes, assigned = _fitting(whole, targets, max(len(headers), len(targets)))
    if assigned.faults:
        raise UnavailableError(*assigned.faults)
    by_name = {target.name: target for target in targets}
    jobs = tuple(_piece_job(recipe, by_name[assigned.places[recipe.name]]) for recipe in recipes)
    return StagePlan(jobs, headers)


def _fitting(whole: Whole, targets: Sequence[Target], pieces: int) -> tuple[tuple[Recipe, ...], Assigned]:
    """Return ever smaller pieces until they fit, or the smallest.

    A run that was stopped finds the same number again: what it wrote is missing from what is free and from what is needed.
    """
    most = min(len(whole.tensors), MOST_SHARDS)
    while True:
        recipes = cut(whole, pieces)
        parcels = [_lying(recipe.name, recipe.size_bytes, targets) for recipe in recipes]
        assigned = assign(parcels, [target.room for target in targets], may_cut=False)
        if not assigned.faults or pieces >= most:
            return recipes, assigned
        pieces = min(2 * pieces, most)


def _piece_job(recipe: Recipe, target: Target) -> Job:
    path = target.folder / recipe.name
    if path in recipe.sources:
        raise ModelFileError(f"{path}: is a source and would be overwritten; stage to another folder")
    if path.exists():
        _check_piece(recipe, path)
        return Job(recipe.name, recipe.size_bytes, target, Doing.THERE, recipe)
    doing = Doing.GO_ON if part_path(target.folder, recipe.name).exists() else Doing.COPY
    return Job(recipe.name, recipe.size_bytes, target, doing, recipe)


def _check_piece(recipe: Recipe, path: Path) -> None:
    head = recipe.parts[0]
    with path.open("rb") as file:
        same = isinstance(head, bytes) and file.read(len(head)) == head
    if not same or path.stat().st_size != recipe.size_bytes:
        raise ModelFileError(f"{path}: lies there already and is another file; remove it or stage to another folder")
