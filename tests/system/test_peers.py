"""Who is at the other end."""

from __future__ import annotations

import grp
import os
import socket

from optaned.system.peers import Peer, group_id, peer_of


def test_the_peer_of_our_own_socket_is_us() -> None:
    here, there = socket.socketpair()
    peer = peer_of(here)
    assert (peer.pid, peer.uid, peer.gid) == (os.getpid(), os.geteuid(), os.getegid())
    assert set(os.getgroups()) <= peer.groups
    assert peer.is_in(grp.getgrgid(os.getegid()).gr_name)
    here.close()
    there.close()


def test_nobody_is_in_a_group_that_does_not_exist() -> None:
    assert not Peer(1, 0, 0, frozenset({0})).is_in("no such group")
    assert group_id("no such group") is None
    assert group_id(grp.getgrgid(0).gr_name) == 0


def test_an_account_without_a_name_is_a_number() -> None:
    assert Peer(1, 4_000_000_001, 0).user == "4000000001"
    assert Peer(1, 0, 0).user == "root"
