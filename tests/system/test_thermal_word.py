"""The thermal word: what is read is what was written, whole and fresh, or it is silence."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.thermal import Level
from optaned.errors import BusyError, UnavailableError
from optaned.system import thermal_word
from optaned.system.thermal_word import SIZE_BYTES, Silence, ThermalWord, WordReader, WordWriter

WARM = ThermalWord(Level.WARM, 1.0, "dimms dimm2 at 61 °C", 100.0, 102.0, bytes(range(32)), 4711)


class Clock:
    def __init__(self, now_s: float = 101.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "guard" / "thermal.word"


@pytest.fixture
def writer(path: Path) -> Iterator[WordWriter]:
    writer = WordWriter(path)
    yield writer
    writer.close()


@pytest.fixture
def reader(path: Path, clock: Clock) -> Iterator[WordReader]:
    reader = WordReader(path, clock=clock)
    yield reader
    reader.close()


def reason_of(said: ThermalWord | Silence) -> str:
    assert isinstance(said, Silence), said
    return said.reason


def test_what_is_written_is_read(writer: WordWriter, reader: WordReader) -> None:
    writer.write(WARM)
    assert reader.read() == WARM
    critical = replace(WARM, level=Level.CRITICAL, duty=0.0, reason="hot")
    writer.write(critical)
    assert reader.read() == critical


def test_without_a_file_there_is_silence(reader: WordReader, path: Path) -> None:
    assert str(path) in reason_of(reader.read())


def test_a_file_without_a_word_is_silence(writer: WordWriter, reader: WordReader) -> None:
    assert "holds no word yet" in reason_of(reader.read())


def test_an_old_word_is_silence_that_knows_its_age(writer: WordWriter, reader: WordReader, clock: Clock) -> None:
    writer.write(WARM)
    clock.now_s = 102.001
    said = reader.read()
    assert isinstance(said, Silence)
    assert said.age_s == pytest.approx(2.001)
    writer.write(replace(WARM, valid_until_s=104.0))
    assert isinstance(reader.read(), ThermalWord)


def test_a_word_of_another_version_is_silence(writer: WordWriter, reader: WordReader, path: Path) -> None:
    writer.write(WARM)
    with path.open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("=II", 99, 1000))
    assert "version 99" in reason_of(reader.read())


def test_a_word_from_before_the_last_boot_is_silence(
    path: Path, reader: WordReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thermal_word, "boot_id", lambda: b"another boot 123")
    earlier = WordWriter(path)
    earlier.write(WARM)
    assert "before the last boot" in reason_of(reader.read())
    earlier.close()


@pytest.mark.parametrize("duty", [-0.1, 1.1, float("nan")])
def test_a_duty_that_cannot_be_is_silence(writer: WordWriter, reader: WordReader, duty: float) -> None:
    writer.write(replace(WARM, duty=duty))
    assert "does not know" in reason_of(reader.read())


def test_a_writer_that_dies_in_the_middle_of_a_word_is_noticed_by_the_old_words_age(
    writer: WordWriter, reader: WordReader, clock: Clock, path: Path
) -> None:
    writer.write(WARM)
    assert reader.read() == WARM
    with path.open("r+b") as file:
        file.seek(12)
        file.write(struct.pack("=I", 1001))  # odd: being written
        file.seek(40)
        file.write(b"half a word")
    assert reader.read() == WARM
    clock.now_s = 102.5
    assert isinstance(reader.read(), Silence)


def test_a_reader_never_sees_half_a_word(writer: WordWriter, path: Path, clock: Clock) -> None:
    words = [replace(WARM, reason=letter * 200, duty=share) for letter, share in (("a", 0.25), ("b", 0.75))]
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            for word in words:
                writer.write(word)

    thread = threading.Thread(target=write)
    thread.start()
    reader = WordReader(path, clock=clock)
    seen = [reader.read() for _ in range(2000)]
    ended.set()
    thread.join()
    reader.close()
    assert all(said in words for said in seen if isinstance(said, ThermalWord))
    assert any(isinstance(said, ThermalWord) for said in seen)


def test_a_replaced_file_is_opened_anew_when_the_old_word_is_stale(
    reader: WordReader, path: Path, clock: Clock
) -> None:
    first = WordWriter(path)
    first.write(WARM)
    assert reader.read() == WARM
    first.close()
    path.unlink()
    second = WordWriter(path)
    fresh = replace(WARM, written_s=103.0, valid_until_s=105.0)
    second.write(fresh)
    clock.now_s = 103.5
    assert reader.read() == fresh
    second.close()


def test_a_new_writer_goes_on_in_the_same_file(path: Path, reader: WordReader) -> None:
    first = WordWriter(path)
    first.write(WARM)
    assert reader.read() == WARM
    inode = path.stat().st_ino
    first.close()
    second = WordWriter(path)
    hot = replace(WARM, level=Level.HOT, duty=0.5)
    second.write(hot)
    assert reader.read() == hot
    assert (path.stat().st_ino, path.stat().st_size) == (inode, SIZE_BYTES)
    second.close()


def test_there_is_one_writer_at_a_time(writer: WordWriter, path: Path) -> None:
    with pytest.raises(BusyError, match="another guard"):
        WordWriter(path)


def test_a_dead_writer_leaves_the_file_to_the_next(path: Path) -> None:
    code = "import os, sys, pathlib; from optaned.system import thermal_word as t; "
    code += "t.WordWriter(pathlib.Path(sys.argv[1])); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    WordWriter(path).close()


def test_a_foreign_file_is_not_touched(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x" * 10_000)
    with pytest.raises(UnavailableError, match="no thermal word"):
        WordWriter(path)
    assert path.stat().st_size == 10_000


def test_a_link_is_not_followed(tmp_path: Path, path: Path, reader: WordReader) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnavailableError):
        WordWriter(path)
    (tmp_path / "elsewhere").write_bytes(bytes(SIZE_BYTES))
    assert isinstance(reader.read(), Silence)


def test_a_short_file_is_silence_and_no_crash(path: Path, reader: WordReader) -> None:
    path.parent.mkdir()
    path.write_bytes(b"short")
    assert "5 bytes" in reason_of(reader.read())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_word_of_another_user_is_silence(writer: WordWriter, reader: WordReader, path: Path) -> None:
    writer.write(WARM)
    os.chown(path, 12345, 12345)
    assert "uid 12345" in reason_of(reader.read())


@given(st.text(max_size=400))
def test_any_reason_survives_or_is_cut_at_a_character(reason: str) -> None:
    length, cut = thermal_word._encode_reason(reason.encode(errors="ignore").decode())
    assert length == len(cut) <= thermal_word.REASON_BYTES
    assert reason.encode(errors="ignore").decode().startswith(cut.decode())


@given(st.integers(0, 400), st.binary(min_size=1, max_size=32))
def test_a_damaged_word_is_silence_or_still_the_word(
    tmp_path_factory: pytest.TempPathFactory, offset: int, damage: bytes
) -> None:
    path = tmp_path_factory.mktemp("word") / "thermal.word"
    writer = WordWriter(path)
    writer.write(WARM)
    writer.close()
    whole = path.read_bytes()
    path.write_bytes((whole[:offset] + damage + whole[offset + len(damage) :])[:SIZE_BYTES])
    reader = WordReader(path, clock=Clock())
    said = reader.read()
    assert said == WARM or isinstance(said, Silence)
    reader.close()
