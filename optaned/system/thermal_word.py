"""The thermal word: how the guard speaks to those who stop the engine. Knows the file, not how a level is decided.

A file of fixed size that one writer changes in place under a sequence lock and any number of readers map. It is never
truncated: a reader would get SIGBUS. An unknown version, a torn or an old word is `Silence`, and silence means stop. A
checksum stands in for the memory barriers that Python does not offer.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from optaned.domain.thermal import Level
from optaned.errors import BusyError, UnavailableError
from optaned.system.boottime import boot_id, boottime_s

VERSION = 1
SIZE_BYTES = 4096
MAGIC = b"OPTNDTW\0"
REASON_BYTES = 256
DIGEST_BYTES = 32

# magic, version, sequence | crc of the body | body: boot, level, writer, duty, written, valid until, digest, reason
_HEAD = struct.Struct("=8sII")
_CRC = struct.Struct("=I4x")
_BODY = struct.Struct(f"=16sIIddd{DIGEST_BYTES}sI{REASON_BYTES}s")
_SEQUENCE_AT = 12
_CRC_AT = _HEAD.size
_BODY_AT = _CRC_AT + _CRC.size
_END = _BODY_AT + _BODY.size
# A writer needs some microseconds for a word; a reader that meets one being written looks again a few times.
_TRIES = 8
_LEVELS = frozenset(int(level) for level in Level)


@dataclass(frozen=True, slots=True)
class ThermalWord:
    """What the guard says. Times are BOOTTIME seconds; `duty` is the share of time in which the engine may run."""

    level: Level
    duty: float
    reason: str
    written_s: float
    valid_until_s: float
    policy_digest: bytes = bytes(DIGEST_BYTES)
    writer_pid: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """There is no word to go by, and why, in words for people; `age_s` since the last word was written, if any was."""

    reason: str
    age_s: float | None = None


class WordWriter:
    """The one writer of a word file; a second one is refused for as long as the first lives."""

    def __init__(self, path: Path) -> None:
        """Create or take over the file. Raises BusyError when another guard writes it, UnavailableError otherwise."""
        self.path = path
        try:
            self._fd = _open_locked(path)
        except OSError as error:
            raise UnavailableError(f"{path}: cannot write the thermal word: {error.strerror}") from error
        self._map = mmap.mmap(self._fd, SIZE_BYTES)
        self._boot_id = boot_id()
        self._sequence = _HEAD.unpack_from(self._map)[2] & ~1

    def write(self, word: ThermalWord) -> None:
        """Replace the word in place. Readers see the old one or the new one."""
        body = _BODY.pack(
            self._boot_id,
            word.level,
            word.writer_pid,
            word.duty,
            word.written_s,
            word.valid_until_s,
            word.policy_digest,
            *_encode_reason(word.reason),
        )
        self._set_sequence(self._sequence + 1)
        _HEAD.pack_into(self._map, 0, MAGIC, VERSION, self._sequence)
        self._map[_BODY_AT:_END] = body
        _CRC.pack_into(self._map, _CRC_AT, zlib.crc32(body))
        self._set_sequence(self._sequence + 1)

    def _set_sequence(self, sequence: int) -> None:
        self._sequence = sequence & 0xFFFFFFFF
        struct.pack_into("=I", self._map, _SEQUENCE_AT, self._sequence)

    def close(self) -> None:
        """Give up the file; it stays, and what it says gets old."""
        self._map.close()
        os.close(self._fd)


class WordReader:
    """Reads a word that may not exist yet, may be replaced, may be written this very moment. Not thread-safe."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = boottime_s) -> None:
        self.path = path
        self._clock = clock
        self._boot_id = boot_id()
        self._map: mmap.mmap | None = None
        self._inode: tuple[int, int] = (0, 0)
        self._sequence = -1
        self._word: ThermalWord | None = None
        self._fault = "no word yet"

    def read(self) -> ThermalWord | Silence:
        """Return the word if it is valid now, else why there is none. Costs microseconds while nothing changes."""
        # The time is taken first: a process that is stopped in between must not find a fresh word old when it goes on.
        now_s = self._clock()
        self._refresh()
        if self._word is None or now_s > self._word.valid_until_s:
            self._reopen()
            self._refresh()
        word = self._word
        if word is None:
            return Silence(f"the guard is silent: {self._fault}")
        if now_s > word.valid_until_s:
            age_s = now_s - word.written_s
            return Silence(f"the guard is silent for {age_s:.1f} s", age_s)
        return word

    def _refresh(self) -> None:
        if self._map is None:
            return
        for _ in range(_TRIES):
            magic, version, sequence = _HEAD.unpack_from(self._map)
            if sequence == self._sequence:
                return
            if magic != MAGIC or version != VERSION:
                found = f"is of version {version}, not {VERSION}" if magic == MAGIC else "holds no word yet"
                self._forget(f"{self.path} {found}")
                return
            (crc,) = _CRC.unpack_from(self._map, _CRC_AT)
            body = self._map[_BODY_AT:_END]
            if sequence % 2 == 0 and sequence == _HEAD.unpack_from(self._map)[2] and crc == zlib.crc32(body):
                self._accept(body, sequence)
                return
        # The last whole word stays until it is too old: a guard that died in the middle of writing is noticed by that.

    def _accept(self, body: bytes, sequence: int) -> None:
        boot, level, pid, duty, written_s, valid_until_s, digest, length, reason = _BODY.unpack(body)
        if boot != self._boot_id:
            # BOOTTIME starts anew with every boot: a word on a disk could look fresh again.
            self._forget(f"{self.path} is from before the last boot")
            return
        if level not in _LEVELS or not 0 <= duty <= 1:
            self._forget(f"{self.path} says level {level}, duty {duty:g}, which this version does not know")
            return
        known = Level(level)
        text = reason[: min(length, REASON_BYTES)].decode("utf-8", errors="replace")
        self._word = ThermalWord(known, duty, text, written_s, valid_until_s, digest, pid)
        self._sequence = sequence

    def _forget(self, fault: str) -> None:
        self._word, self._sequence, self._fault = None, -1, fault

    def _reopen(self) -> None:
        try:
            stat = self.path.stat()
        except OSError as error:
            self._fault = f"{self.path}: {error.strerror}"
            return
        if self._map is not None and (stat.st_dev, stat.st_ino) == self._inode:
            return
        self.close()
        try:
            self._map, self._inode = _map_for_reading(self.path)
        except (OSError, ValueError) as error:  # ValueError: it shrank between our look and the mapping
            self._fault = f"{self.path}: {getattr(error, 'strerror', None) or error}"

    def close(self) -> None:
        self._forget("no word yet")
        if self._map is not None:
            self._map.close()
            self._map = None


def _encode_reason(text: str) -> tuple[int, bytes]:
    cut = text.encode()[:REASON_BYTES].decode(errors="ignore").encode()
    return len(cut), cut


def _open_locked(path: Path) -> int:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(fd, 0o644)
        _grow(fd)
    except BlockingIOError as error:
        os.close(fd)
        raise BusyError(f"{path}: another guard is writing this thermal word; stop it first") from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def _grow(fd: int) -> None:
    size_bytes = os.fstat(fd).st_size
    if size_bytes > SIZE_BYTES:
        raise FileExistsError(errno.EEXIST, f"is {size_bytes} bytes long and no thermal word; remove it")
    os.ftruncate(fd, SIZE_BYTES)


def _map_for_reading(path: Path) -> tuple[mmap.mmap, tuple[int, int]]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        stat = os.fstat(fd)
        if stat.st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, f"belongs to uid {stat.st_uid}, not to root or to us")
        if stat.st_size < SIZE_BYTES:
            raise OSError(errno.EINVAL, f"is {stat.st_size} bytes long, a thermal word has {SIZE_BYTES}")
        return mmap.mmap(fd, SIZE_BYTES, prot=mmap.PROT_READ), (stat.st_dev, stat.st_ino)
    finally:
        os.close(fd)
