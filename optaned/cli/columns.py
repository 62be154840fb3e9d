"""Text in columns, as wide as their contents: the same on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines with a header; columns whose cells begin with a digit are set to the right."""
    table = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(header))]
    right = [any(row[at][:1].isdigit() for row in table[1:]) for at in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in table
    )
