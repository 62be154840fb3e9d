"""What the parent says while the main thread is busy."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from optaned.engine.frames import FrameSocket, encode
from optaned.engine.inbox import Inbox
from optaned.engine.messages import Cancel, Close, EmbedTokens
from optaned.testing.daemon import eventually


@pytest.fixture
def parent() -> Iterator[tuple[socket.socket, Inbox]]:
    ours, theirs = socket.socketpair()
    inbox = Inbox(FrameSocket(theirs))
    inbox.start()
    yield ours, inbox
    ours.close()
    eventually(lambda: inbox.closed)
    theirs.close()


def test_a_cancel_is_known_before_it_is_taken_and_forgotten_after(parent: tuple[socket.socket, Inbox]) -> None:
    ours, inbox = parent
    ours.sendall(encode(EmbedTokens("a", (1,))) + encode(Cancel("a")))
    eventually(lambda: inbox.is_cancelled("a"))
    assert not inbox.is_cancelled("b")
    taken = list(inbox.take(wait=True))
    while len(taken) < 2:
        taken += inbox.take(wait=True)
    assert taken == [EmbedTokens("a", (1,)), Cancel("a")]
    assert not inbox.is_cancelled("a")


def test_without_waiting_an_empty_inbox_gives_nothing(parent: tuple[socket.socket, Inbox]) -> None:
    _, inbox = parent
    assert list(inbox.take(wait=False)) == []


@pytest.mark.parametrize("how", ["close frame", "closed socket", "nonsense"])
def test_everything_is_cancelled_once_the_parent_is_gone(parent: tuple[socket.socket, Inbox], how: str) -> None:
    ours, inbox = parent
    match how:
        case "close frame":
            ours.sendall(encode(Close()))
        case "closed socket":
            ours.shutdown(socket.SHUT_RDWR)
        case "nonsense":
            ours.sendall(b"\xff" * 8)
    assert list(inbox.take(wait=True)) == []
    assert inbox.closed
    assert inbox.is_cancelled("anything")
