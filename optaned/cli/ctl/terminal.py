"""Where text goes: answers to stdout, everything about them to stderr. Escape codes only where a terminal reads them.

Knows no daemon.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from typing import Any, TextIO

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
# A model's answer must not steer the terminal: control characters are shown, not sent.
_SHOWN = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {0x7F: 0x2421}
_SHOWN |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


class Terminal:
    """Two streams. `live` says that someone watches stderr, `dims` that stdout shows dim text."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        capable = os.environ.get("TERM", "dumb") != "dumb"
        self._is_tty = out.isatty()
        self.live = err.isatty() and capable
        self.dims = self._is_tty and capable and not os.environ.get("NO_COLOR")
        self._has_progress = False
        self._at_line_start = True

    def write(self, text: str) -> None:
        """Write a piece of an answer at once."""
        if not text:
            return
        self.progress("")
        self._out.write(text.translate(_SHOWN) if self._is_tty else text)
        self._out.flush()
        self._at_line_start = text.endswith("\n")

    def write_aside(self, text: str) -> None:
        """Write a piece of reasoning, dim; a reader that is no terminal gets the answer alone."""
        if text and self._is_tty:
            self.progress("")
            shown = text.translate(_SHOWN)
            self._out.write(f"{DIM}{shown}{PLAIN}" if self.dims else shown)
            self._out.flush()
            self._at_line_start = text.endswith("\n")

    def part(self) -> None:
        """Set the answer apart from the reasoning that was shown before it."""
        if self._is_tty:
            self.end_line()
            self._out.write("\n")

    def end_line(self) -> None:
        """Finish the line that an answer left open."""
        if not self._at_line_start:
            self.write("\n")

    def say(self, line: str) -> None:
        """Write one line about what happens."""
        self.progress("")
        self._err.write(line + "\n")
        self._err.flush()

    def progress(self, line: str) -> None:
        """Replace the progress line; an empty one removes it. It shows only to somebody, never in mid-line."""
        if not self.live or not (line or self._has_progress):
            return
        if line and self._is_tty and not self._at_line_start:
            return  # the answer's own line would be erased
        width = shutil.get_terminal_size().columns - 1
        self._err.write(f"\r\x1b[K{DIM}{line[:width]}{PLAIN}" if line else "\r\x1b[K")
        self._err.flush()
        self._has_progress = bool(line)


def print_json(out: TextIO, value: Any) -> None:
    """Write one JSON document, keys in the documented order."""
    out.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def print_table(out: TextIO, rows: Sequence[tuple[str, ...]]) -> None:
    """Write rows in columns as wide as their widest cell, the first row being the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        out.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")
