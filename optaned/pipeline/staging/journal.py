"""The journal of one unfinished copy: how far it has safely come, and the digest of all bytes up to there.

A line a point: the number of bytes that are on the medium, and blake2b over them. As digests are of the whole
beginning and not of blocks, going on from a point also goes on with the digest of the whole file: nothing is hashed
twice, and the last digest is the one that `b2sum` prints. A torn last line is what a power cut leaves; it is ignored.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_HEAD = re.compile(r"optaned-copy 1 ([0-9a-f]{32})")
_POINT = re.compile(r"(\d{1,19}) ([0-9a-f]{128})")


@dataclass(frozen=True, slots=True)
class Point:
    """`done_bytes` from the start are on the medium and have this blake2b."""

    done_bytes: int
    digest: str


def parse_journal(text: str, identity: str) -> tuple[Point, ...]:
    """Return the points of a journal in order; none of one that belongs to another copy or that is no journal."""
    lines = text.split("\n")
    head = _HEAD.fullmatch(lines[0])
    if head is None or head[1] != identity:
        return ()
    points: list[Point] = []
    for line in lines[1:-1]:  # what follows the last newline was not written to its end
        match = _POINT.fullmatch(line)
        if match is None or int(match[1]) <= (points[-1].done_bytes if points else 0):
            break
        points.append(Point(int(match[1]), match[2]))
    return tuple(points)


class Journal:
    """Appends points to a file; each is on the medium when `add` returns."""

    def __init__(self, path: Path, identity: str, points: tuple[Point, ...] = ()) -> None:
        """Begin a journal, replacing what is there, with the points that were found to hold."""
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o644)
        kept = "".join(f"{point.done_bytes} {point.digest}\n" for point in points)
        self._write(f"optaned-copy 1 {identity}\n{kept}")

    @staticmethod
    def read(path: Path, identity: str) -> tuple[Point, ...]:
        """Return the points that a former copy left at `path`."""
        try:
            return parse_journal(path.read_text("ascii", errors="replace"), identity)
        except FileNotFoundError:
            return ()

    def add(self, point: Point) -> None:
        self._write(f"{point.done_bytes} {point.digest}\n")

    def _write(self, text: str) -> None:
        os.write(self._fd, text.encode("ascii"))
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
