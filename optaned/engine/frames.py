"""One message is one frame: four bytes of length, then MessagePack. Knows how bytes become messages; knows no process.

The child uses `FrameSocket` (blocking); the parent's event loop feeds a `FrameBuffer` with whatever bytes arrive.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from optaned.engine.messages import FromWorker, ToWorker

LENGTH = struct.Struct("<I")

# A vocabulary of 256k tokens described whole is about 10 MB; a length above this is not ours.
MAX_FRAME_BYTES = 256 << 20

_RECEIVE_BYTES = 1 << 16

MessageT = TypeVar("MessageT")

_encoder = msgspec.msgpack.Encoder()
_down: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_up: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


class FrameError(ValueError):
    """The other side sent something that is not a frame of ours; the connection is useless from here on."""


def encode(message: object) -> bytes:
    """Return one message as a frame."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


class FrameBuffer(Generic[MessageT]):
    """Turns a stream of bytes, cut anywhere, into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[MessageT]) -> None:
        self._decoder = decoder
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[MessageT]:
        """Yield the messages that `data` completes. Raises FrameError."""
        pending = self._pending
        pending += data
        start = 0
        try:
            while len(pending) - start >= LENGTH.size:
                (length,) = LENGTH.unpack_from(pending, start)
                if length > MAX_FRAME_BYTES:
                    raise FrameError(f"a frame of {length} bytes is longer than {MAX_FRAME_BYTES}")
                end = start + LENGTH.size + length
                if end > len(pending):
                    break
                body = bytes(pending[start + LENGTH.size : end])
                start = end
                yield self._decode(body)
        finally:
            del pending[:start]

    def _decode(self, body: bytes) -> MessageT:
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FrameError(f"a frame that is not a message: {error}") from error


def from_worker_buffer() -> FrameBuffer[FromWorker]:
    """Return the parent's buffer."""
    return FrameBuffer(_up)


def to_worker_buffer() -> FrameBuffer[ToWorker]:
    """Return a child's buffer."""
    return FrameBuffer(_down)


class FrameSocket:
    """The child's end: one thread receives, any thread sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._buffer = to_worker_buffer()

    def send(self, messages: Iterable[FromWorker]) -> None:
        """Send messages with one system call. Raises OSError when the parent is gone."""
        data = b"".join([encode(message) for message in messages])
        with self._sending:
            self._connection.sendall(data)

    def receive(self) -> Iterator[ToWorker]:
        """Yield messages until the parent closes its end. Raises FrameError or OSError."""
        while data := self._connection.recv(_RECEIVE_BYTES):
            yield from self._buffer.feed(data)

    def close(self) -> None:
        self._connection.close()
