"""The list of content digests beside staged files, in the format of `b2sum`: `b2sum -c B2SUMS` checks it without us."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from optaned.pipeline.staging.direct import sync_folder

NAME = "B2SUMS"
_LINE = re.compile(r"([0-9a-f]{128}) [ *](.+)")


def parse_manifest(text: str) -> dict[str, str]:
    """Return digests by file name; lines that are none are left out."""
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return {match[2]: match[1] for match in matches if match}


def read_manifest(folder: Path) -> dict[str, str]:
    """Return the digests that were recorded in a folder."""
    try:
        return parse_manifest((folder / NAME).read_text(errors="surrogateescape"))
    except FileNotFoundError:
        return {}


def record(folder: Path, digests: Mapping[str, str]) -> None:
    """Add digests to a folder's manifest, or replace them there: all or nothing, and on the medium."""
    merged = {**read_manifest(folder), **digests}
    text = "".join(f"{merged[name]}  {name}\n" for name in sorted(merged))
    fd, temporary = tempfile.mkstemp(prefix=f".{NAME}.", dir=folder)
    try:
        with os.fdopen(fd, "w", errors="surrogateescape") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(folder / NAME)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    sync_folder(folder)
