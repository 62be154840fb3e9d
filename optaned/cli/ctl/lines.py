"""Messages that somebody types, or that a script pipes in: one a line, or several lines between triple quotes."""

from __future__ import annotations

import importlib
from typing import TextIO

QUOTES = '"""'


class LineReader:
    """Prompts and edits lines on a terminal; reads plain lines elsewhere."""

    def __init__(self, source: TextIO, out: TextIO) -> None:
        self._source = source
        self.interactive = source.isatty() and out.isatty()
        if self.interactive:
            importlib.import_module("readline")  # from here on `input` edits and remembers lines

    def read_message(self) -> str | None:
        """Return the next message without its quotes; None at the end of input. Raises KeyboardInterrupt."""
        line = self._read_line(">>> ")
        if line is None or not line.startswith(QUOTES):
            return line
        lines: list[str] = []
        line = line.removeprefix(QUOTES)
        while line is not None and not line.rstrip().endswith(QUOTES):
            lines.append(line)
            line = self._read_line("... ")
        if line is not None:
            lines.append(line.rstrip().removesuffix(QUOTES))
        return "\n".join(lines).strip("\n")

    def _read_line(self, prompt: str) -> str | None:
        if self.interactive:
            try:
                return input(prompt)
            except EOFError:
                return None
        line = self._source.readline()
        return line.removesuffix("\n") if line else None
