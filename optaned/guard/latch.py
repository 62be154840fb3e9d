"""The latch: a trip is remembered on disk until someone removes it. Knows one file, no temperature."""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger("optaned.guard.latch")


class Latch:
    """The file `trip.latch` in the guard's state directory; its text is the reason."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "trip.latch"
        self._only_in_memory: str | None = None

    @property
    def reason(self) -> str | None:
        """Return why the latch is set, None when it is not. A latch that cannot be read is set."""
        if self._only_in_memory is not None:
            return self._only_in_memory
        try:
            text = self.path.read_text("utf-8", errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        return text or "unknown"

    def set(self, reason: str) -> None:
        """Remember a trip. When the disk refuses, this process remembers it alone, and says so."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _write_durably(self.path, reason + "\n")
        except OSError as error:
            log.critical("%s: cannot be written (%s): a restart of the guard will forget this trip", self.path, error)
            self._only_in_memory = reason


def _write_durably(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
