"""The heat of one model under one profile's name, on disk. Knows files; what the bytes mean, `placement.heat_bytes` knows.

A file is written beside its place, synced, and renamed: whoever reads finds the old one or the new one, also after a power
cut. What a killed engine loses is what it learned since the last flush.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from optaned.errors import AccessError, ConfigError, UnavailableError
from optaned.placement.heat import Heat
from optaned.placement.heat_bytes import decode_heat, encode_heat

# K3's heat is 1.3 MB; a write each half a minute is nothing for a disk, and half a minute is 30 tokens of it.
FLUSH_INTERVAL_S = 30.0
_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def heat_path(state_dir: Path, digest: str, profile: str) -> Path:
    """Return where a model's heat is kept. Raises ConfigError for a profile's name that is no file name."""
    if not _PROFILE.fullmatch(profile):
        raise ConfigError(
            f"placement.profile: {profile!r} is no name for a profile; use up to 64 letters, digits, dots, "
            "dashes and underscores"
        )
    return state_dir / "heat" / digest / f"{profile}.heat"


def read_heat(path: Path, *, digest: str, experts: int) -> Heat | None:
    """Return the saved heat of a model with `experts` experts in all; None where none was saved.

    Raises OptanedError in one line for another model's file, a damaged one, and one that cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AccessError(f"{path}: cannot be read: {_reason(error)}; give it to the service's user") from None
    try:
        return decode_heat(data, digest, experts)
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {line}" for line in error.lines)) from None


def write_heat(path: Path, heat: Heat, *, digest: str) -> None:
    """Put heat on disk, whole or not at all. Raises UnavailableError; what was there before is still there then."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(encode_heat(heat, digest))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise UnavailableError(f"{path}: heat cannot be saved: {_reason(error)}; it is kept in memory") from None


class HeatFlusher:
    """Writes heat at most once an interval, and never the same heat twice. The caller brings the time (seconds)."""

    def __init__(self, path: Path, *, digest: str, now_s: float, interval_s: float = FLUSH_INTERVAL_S) -> None:
        self._path, self._digest, self._interval_s = path, digest, interval_s
        self._due_s = now_s + interval_s
        self._written: Heat | None = None

    def due(self, now_s: float) -> bool:
        """Say whether the interval is over."""
        return now_s >= self._due_s

    def flush(self, heat: Heat, now_s: float) -> bool:
        """Write unless this heat is written; say whether it was. A failed write is tried again an interval later."""
        self._due_s = now_s + self._interval_s
        if heat is self._written:
            return False
        write_heat(self._path, heat, digest=self._digest)
        self._written = heat
        return True


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
