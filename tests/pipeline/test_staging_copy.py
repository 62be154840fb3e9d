"""A copy is what its source is, however often it was interrupted, and says so when it is not."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.errors import BusyError, ModelFileError
from optaned.pipeline.staging.copying import Copier, Watcher, journal_path, part_path
from optaned.pipeline.staging.direct import CHUNK_BYTES
from optaned.pipeline.staging.journal import Journal, Point, parse_journal
from optaned.pipeline.staging.recipe import Recipe, Stretch, copy_of

SIZE = 3 * CHUNK_BYTES + 12_345


class Interrupt(Exception):
    pass


class Patience:
    """Lets so many chunks pass, then interrupts; counts what was advanced."""

    def __init__(self, chunks: int = 1_000) -> None:
        self.left = chunks
        self.advanced_bytes = 0

    def passed(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Interrupt

    def advanced(self, size_bytes: int) -> None:
        self.advanced_bytes += size_bytes

    def copier(self) -> Copier:
        return Copier(Watcher(self.passed, self.advanced), point_bytes=CHUNK_BYTES)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "to").mkdir()
    return tmp_path / "to"


@pytest.fixture
def copier() -> Iterator[Copier]:
    made = Patience().copier()
    yield made
    made.close()


def recipe(source: Path) -> Recipe:
    return copy_of(source, source.stat().st_size)


def test_a_copy_has_its_source_s_bytes_digest_time_and_permissions(source: Path, folder: Path, copier: Copier) -> None:
    source.chmod(0o640)
    copied = copier.copy(recipe(source), folder, verify=True)
    assert copied.path.read_bytes() == source.read_bytes()
    assert copied.digest == hashlib.blake2b(source.read_bytes()).hexdigest()
    assert copied.resumed_bytes == 0
    assert copied.path.stat().st_mtime_ns == source.stat().st_mtime_ns
    assert copied.path.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in folder.iterdir()) == ["model.gguf"]


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_sizes_around_pages_and_chunks_are_kept(tmp_path: Path, folder: Path, copier: Copier, size: int) -> None:
    source = tmp_path / "odd.gguf"
    source.write_bytes(os.urandom(size))
    assert copier.copy(recipe(source), folder, verify=True).path.read_bytes() == source.read_bytes()


def test_an_interrupted_copy_goes_on_where_it_was(source: Path, folder: Path) -> None:
    impatient = Patience(chunks=1)
    with pytest.raises(Interrupt):
        impatient.copier().copy(recipe(source), folder, verify=False)
    assert not (folder / source.name).exists()
    patient = Patience()
    copied = patient.copier().copy(recipe(source), folder, verify=True)
    assert copied.resumed_bytes == 2 * CHUNK_BYTES
    assert copied.path.read_bytes() == source.read_bytes()
    assert copied.digest == hashlib.blake2b(source.read_bytes()).hexdigest()
    assert patient.advanced_bytes == 2 * SIZE, "read back, copied, verified"


def test_what_was_damaged_since_is_copied_again(source: Path, folder: Path) -> None:
    with pytest.raises(Interrupt):
        Patience(chunks=1).copier().copy(recipe(source), folder, verify=False)
    with part_path(folder, source.name).open("r+b") as part:
        part.seek(CHUNK_BYTES + 7)
        part.write(b"damage")
    copied = Patience().copier().copy(recipe(source), folder, verify=True)
    assert copied.resumed_bytes == CHUNK_BYTES
    assert copied.path.read_bytes() == source.read_bytes()


def test_a_source_that_was_written_to_since_is_copied_from_the_start(source: Path, folder: Path) -> None:
    with pytest.raises(Interrupt):
        Patience(chunks=2).copier().copy(recipe(source), folder, verify=False)
    source.write_bytes(os.urandom(SIZE))
    copied = Patience().copier().copy(recipe(source), folder, verify=True)
    assert copied.resumed_bytes == 0
    assert copied.path.read_bytes() == source.read_bytes()


def test_a_source_that_changes_meanwhile_is_refused_and_nothing_is_left(source: Path, folder: Path) -> None:
    class Meddler(Patience):
        def passed(self) -> None:
            with source.open("r+b") as file:
                file.write(b"changed")
            os.utime(source, ns=(0, 0))

    with pytest.raises(ModelFileError, match="changed while it was copied"):
        Meddler().copier().copy(recipe(source), folder, verify=False)
    assert list(folder.iterdir()) == []


def test_a_source_that_becomes_shorter_is_refused(source: Path, folder: Path) -> None:
    wanted = recipe(source)
    os.truncate(source, CHUNK_BYTES)
    with pytest.raises(ModelFileError, match="became shorter"):
        Patience().copier().copy(wanted, folder, verify=False)


def test_a_copy_that_reads_back_differently_never_gets_its_name(source: Path, folder: Path) -> None:
    class Decay(Patience):
        """Flips a byte on the medium once all of it is written."""

        def advanced(self, size_bytes: int) -> None:
            super().advanced(size_bytes)
            if self.advanced_bytes == SIZE:
                with part_path(folder, source.name).open("r+b") as part:
                    part.seek(2 * CHUNK_BYTES)
                    part.write(bytes([source.read_bytes()[2 * CHUNK_BYTES] ^ 1]))
                    os.fsync(part.fileno())

    with pytest.raises(ModelFileError, match="reads back differently"):
        Decay().copier().copy(recipe(source), folder, verify=True)
    assert list(folder.iterdir()) == []


def test_two_at_once_do_not_write_one_file(source: Path, folder: Path, copier: Copier) -> None:
    with part_path(folder, source.name).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="another process is writing it"):
            copier.copy(recipe(source), folder, verify=False)


def test_a_file_is_put_together_from_stretches_and_bytes(source: Path, folder: Path, copier: Copier) -> None:
    parts = (b"head", Stretch(source, 5, CHUNK_BYTES), b"", Stretch(source, CHUNK_BYTES + 100, 33), bytes(7))
    copied = copier.copy(Recipe("made.gguf", parts), folder, verify=True)
    whole = source.read_bytes()
    made = b"head" + whole[5 : CHUNK_BYTES + 5] + whole[CHUNK_BYTES + 100 : CHUNK_BYTES + 133] + bytes(7)
    assert copied.path.read_bytes() == made


# ---- the journal ------------------------------------------------------------------------------------------------------


IDENTITY = "0123456789abcdef" * 2
points = st.lists(st.integers(1, 1 << 50), unique=True, max_size=8).map(
    lambda ends: tuple(Point(end, hashlib.blake2b(str(end).encode()).hexdigest()) for end in sorted(ends))
)


@given(points)
def test_a_journal_reads_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, written: tuple[Point, ...]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    journal = Journal(path, IDENTITY, written[:3])
    for point in written[3:]:
        journal.add(point)
    journal.close()
    assert Journal.read(path, IDENTITY) == written
    assert Journal.read(path, "f" * 32) == ()


@given(points, st.integers(0, 2_000))
def test_a_torn_journal_still_has_its_whole_lines(written: tuple[Point, ...], end: int) -> None:
    text = f"optaned-copy 1 {IDENTITY}\n" + "".join(f"{p.done_bytes} {p.digest}\n" for p in written)
    cut = parse_journal(text[:end], IDENTITY)
    assert cut == written[: len(cut)]
    assert len(cut) >= text[:end].count("\n") - 1


@given(st.text())
def test_no_text_breaks_the_journal_s_reader(text: str) -> None:
    assert parse_journal(text, IDENTITY) == ()
    assert parse_journal(f"optaned-copy 1 {IDENTITY}\n{text}", IDENTITY) == ()


def test_there_is_no_journal_before_the_first_copy(folder: Path) -> None:
    assert Journal.read(journal_path(folder, "m.gguf"), IDENTITY) == ()
