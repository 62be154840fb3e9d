"""Who could change a file that is about to be imported. Knows owners and modes, no plugin."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import optaned

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def own_owners() -> frozenset[int]:
    """Return the user ids whose files this process may import: root's and its own."""
    return frozenset({0, os.geteuid()})


def core_owners() -> frozenset[int]:
    """Return root and the owner of the core's own code.

    On an installed system that is root alone. In a checkout that belongs to a user, whoever could write the plugin
    could write the core that imports it: refusing only the plugin would protect nothing.
    """
    return frozenset({0, Path(optaned.__file__).stat().st_uid})


def fault_of(path: Path, owners: frozenset[int]) -> str | None:
    """Return why others could change this file or folder itself, or None. Raises OSError."""
    info = path.stat()
    if info.st_uid not in owners:
        return f"{path} belongs to uid {info.st_uid}; it must belong to {_names(owners)}"
    if info.st_mode & OTHERS_WRITE:
        return f"{path} can be written by others; run: chmod go-w {path}"
    return None


def fault_of_parents(path: Path, owners: frozenset[int], *, strict: bool) -> str | None:
    """Return why others could swap a folder above `path`, or None.

    A sticky folder (/tmp) lets nobody rename what is not theirs. Unless `strict`, group-writable parents pass: many
    distributions give each user a group of their own and a home that the group can write.
    """
    forbidden = OTHERS_WRITE if strict else stat.S_IWOTH
    for parent in path.parents:
        info = parent.stat()
        if info.st_mode & forbidden and not info.st_mode & stat.S_ISVTX:
            return f"{parent} can be written by others; run: chmod go-w {parent}"
        if strict and info.st_uid not in owners:
            return f"{parent} belongs to uid {info.st_uid}; it must belong to {_names(owners)}"
    return None


def fault_of_tree(root: Path, owners: frozenset[int]) -> str | None:
    """Return why others could change a module's file, any file of a package, or a folder above, or None."""
    for path in (root.absolute(), root.resolve()):
        above = fault_of_parents(path, owners, strict=True)
        if above:
            return above
    return first_fault(_tree(root.resolve()), owners)


def first_fault(paths: Iterable[Path], owners: frozenset[int]) -> str | None:
    """Return the first fault among paths, in order."""
    return next((fault for path in paths if (fault := fault_of(path, owners))), None)


def _tree(root: Path) -> Iterator[Path]:
    yield root
    if root.is_dir():
        yield from sorted(root.rglob("*"))


def _names(owners: frozenset[int]) -> str:
    return " or ".join("root" if uid == 0 else f"uid {uid}" for uid in sorted(owners))
