"""One file brought to a folder: written under a hidden name, safe on the medium, verified if asked, then renamed.

A copy that is stopped, killed or loses power goes on from the journal's last point, after what lies there has been read
back and still has that point's digest. Nothing ever bears its final name before it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from optaned.errors import BusyError, ModelFileError
from optaned.pipeline.staging.direct import CHUNK_BYTES, File, sync_folder
from optaned.pipeline.staging.journal import Journal, Point
from optaned.pipeline.staging.pump import EndedEarly, Pump
from optaned.pipeline.staging.recipe import Recipe, Stretch, identity_of

# What a power cut or a SIGKILL may cost; a flush of a disk's cache each 4 MiB would cost half of its speed.
POINT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told of progress. `passed` is called between chunks and may wait, or raise to stop.

    `advanced(size_bytes)`: so many more bytes are copied or read back.
    """

    passed: Callable[[], None]
    advanced: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """A finished copy: where, its blake2b (as `b2sum` prints it), and how much of it a former copy had done."""

    path: Path
    digest: str
    resumed_bytes: int


def part_path(folder: Path, name: str) -> Path:
    """Return where an unfinished copy lies."""
    return folder / f".{name}.part"


def journal_path(folder: Path, name: str) -> Path:
    """Return where the journal of an unfinished copy lies."""
    return folder / f".{name}.journal"


class Copier:
    """Copies files one after another with one pump. Used by one thread."""

    def __init__(self, watcher: Watcher, *, point_bytes: int = POINT_BYTES, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._watcher = watcher
        self._point_bytes = point_bytes
        self._pump = Pump(chunk_bytes)

    def copy(self, recipe: Recipe, folder: Path, *, verify: bool) -> Copied:
        """Write what a recipe says into a folder.

        Raises ModelFileError when a source changes meanwhile or the copy differs from it, BusyError when another process
        copies the same file, OSError from the file systems.
        """
        path, part = folder / recipe.name, part_path(folder, recipe.name)
        file = File(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            _lock(file)
            identity = identity_of(recipe)
            digest, points = self._resume(file, Journal.read(journal_path(folder, recipe.name), identity))
            resumed = points[-1].done_bytes if points else 0
            journal = Journal(journal_path(folder, recipe.name), identity, points)
            try:
                self._fill(file, recipe, digest, journal, resumed)
            finally:
                journal.close()
            if identity_of(recipe) != identity:
                raise self._discard(file, journal, f"{_names(recipe)}: changed while it was copied; stage it again")
            if verify and self.digest_of(part) != digest.hexdigest():
                raise self._discard(
                    file, journal, f"{path}: the copy reads back differently; the medium may be failing, stage it again"
                )
            _take_over_metadata(file, recipe)
            part.replace(path)
            sync_folder(folder)
            journal.path.unlink()
            return Copied(path, digest.hexdigest(), resumed)
        finally:
            file.close()

    def digest_of(self, path: Path) -> str:
        """Return the blake2b of a file as it lies on the medium, not as the page cache remembers it."""
        digest = hashlib.blake2b()
        file = File(path, os.O_RDONLY)
        try:
            if not file.is_direct:
                file.forget()
            size_bytes = os.fstat(file.fd).st_size
            self._pump.run(file.read, 0, size_bytes, digest, passed=self._passing(0))
        except EndedEarly:
            raise ModelFileError(f"{path}: became shorter while it was read; is something still writing it?") from None
        finally:
            file.close()
        return digest.hexdigest()

    def _fill(self, file: File, recipe: Recipe, digest: hashlib.blake2b, journal: Journal, resumed: int) -> None:
        size_bytes = recipe.size_bytes
        if size_bytes:
            # Refused now rather than in an hour where there is no room; and few large extents, which DAX maps in large pages.
            os.posix_fallocate(file.fd, 0, size_bytes)
        reader, passing = _Reader(recipe), self._passing(resumed)
        marked = resumed

        def mark(done: int) -> None:
            nonlocal marked
            if done % CHUNK_BYTES == 0 and done > marked:
                os.fdatasync(file.fd)
                journal.add(Point(done, digest.copy().hexdigest()))
                marked = done

        def passed(done: int) -> None:
            if done - marked >= self._point_bytes:
                mark(done)
            try:
                passing(done)
            except BaseException:  # whoever stops wants to go on from here
                mark(done)
                raise

        try:
            self._pump.run(reader.read, resumed, size_bytes, digest, put=file.write, passed=passed)
        except EndedEarly:
            raise ModelFileError(f"{_names(recipe)}: became shorter while it was copied; stage it again") from None
        finally:
            reader.close()
        os.ftruncate(file.fd, size_bytes)
        os.fsync(file.fd)

    def _resume(self, file: File, points: Sequence[Point]) -> tuple[hashlib.blake2b, tuple[Point, ...]]:
        """Return the digest and the points that hold for what lies there."""
        digest = good = hashlib.blake2b()
        kept: list[Point] = []
        there = os.fstat(file.fd).st_size
        for point in points:
            if point.done_bytes > there or point.done_bytes % CHUNK_BYTES:
                break
            start = kept[-1].done_bytes if kept else 0
            digest = good.copy()
            self._pump.run(file.read, start, point.done_bytes, digest, passed=self._passing(start))
            if digest.hexdigest() != point.digest:
                break
            good = digest
            kept.append(point)
        return good, tuple(kept)

    def _passing(self, start: int) -> Callable[[int], None]:
        last = start

        def passed(done: int) -> None:
            nonlocal last
            self._watcher.advanced(done - last)
            last = done
            self._watcher.passed()

        return passed

    def _discard(self, file: File, journal: Journal, line: str) -> ModelFileError:
        file.path.unlink(missing_ok=True)
        journal.path.unlink(missing_ok=True)
        return ModelFileError(line)

    def close(self) -> None:
        self._pump.close()


class _Reader:
    """Reads a recipe's bytes as if they were one file."""

    def __init__(self, recipe: Recipe) -> None:
        self._parts = recipe.parts
        self._starts = [0, *accumulate(_length(part) for part in recipe.parts)]
        # Parts of files begin anywhere, which direct transfers cannot.
        direct = recipe.whole is not None
        self._files = {path: File(path, os.O_RDONLY, direct=direct) for path in recipe.sources}

    def read(self, view: memoryview, offset: int) -> int:
        filled = 0
        number = bisect_right(self._starts, offset) - 1
        while filled < len(view) and number < len(self._parts):
            part, at = self._parts[number], offset + filled - self._starts[number]
            wanted = min(len(view) - filled, _length(part) - at)
            if isinstance(part, bytes):
                view[filled : filled + wanted] = part[at : at + wanted]
                count = wanted
            else:
                file = self._files[part.path]
                # A whole file is read to the buffer's end: a direct read must be aligned, whatever is left of the file.
                room = view if file.is_direct else view[filled : filled + wanted]
                count = min(file.read(room, part.offset + at), wanted)
            filled += count
            if count < wanted:
                break
            number += 1
        return filled

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _length(part: bytes | Stretch) -> int:
    return len(part) if isinstance(part, bytes) else part.size_bytes


def _names(recipe: Recipe) -> str:
    return ", ".join(map(str, recipe.sources))


def _lock(file: File) -> None:
    """Hold the unfinished file for ourselves; the lock goes with the descriptor, however this process ends."""
    try:
        fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(f"{file.path}: another process is writing it; wait for it to end") from None


def _take_over_metadata(file: File, recipe: Recipe) -> None:
    """Give a plain copy its source's permissions and time, and what was put together the usual ones."""
    if recipe.whole is None:
        return
    stat = recipe.whole.stat()
    os.fchmod(file.fd, stat.st_mode & 0o777)
    os.utime(file.fd, ns=(stat.st_atime_ns, stat.st_mtime_ns))
