"""Hooks that act: asked in the order of names, their failures counted, logged on the edge and never passed on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optaned.api import Level, MissingFileError, Proposal, Snapshot, Vote, hookimpl
from optaned.hooks.host import PluginHost
from optaned.hooks.spec import GUARD_GROUP

PROPOSAL = Proposal(Level.WARM, 1.0, 0.5)


def resolver(answer: Callable[[str], Sequence[Path] | None]) -> SimpleNamespace:
    @hookimpl
    def optaned_resolve_model(ref: str) -> Sequence[Path] | None:
        return answer(ref)

    return SimpleNamespace(OPTANED_API=(1, 0), optaned_resolve_model=optaned_resolve_model)


def listener(hear: Callable[[Mapping[str, Any]], None]) -> SimpleNamespace:
    @hookimpl
    def optaned_event(event: Mapping[str, Any]) -> None:
        hear(event)

    return SimpleNamespace(OPTANED_API=(1, 0), optaned_event=optaned_event)


def voter(vote: object) -> SimpleNamespace:
    @hookimpl
    def optaned_governor_vote(proposal: Proposal) -> Any:
        if isinstance(vote, BaseException):
            raise vote
        return vote

    return SimpleNamespace(OPTANED_API=(1, 0), optaned_governor_vote=optaned_governor_vote)


def test_the_first_answer_by_plugin_name_wins_whatever_the_order_of_loading() -> None:
    host = PluginHost()
    host.register(resolver(lambda _: [Path("z")]), "zeta")
    host.register(resolver(lambda _: None), "alpha")
    host.register(resolver(lambda _: [Path("m")]), "mid")
    assert host.first("optaned_resolve_model", ref="x:y") == [Path("m")]


def test_a_raising_plugin_does_not_keep_others_from_answering() -> None:
    host = PluginHost()
    host.register(resolver(lambda ref: [Path(ref[99])]), "alpha")
    host.register(resolver(lambda _: [Path("z")]), "zeta")
    assert host.first("optaned_resolve_model", ref="x:y") == [Path("z")]
    assert [r.failures for r in host.records] == [1, 0]


def test_an_expected_error_of_a_resolver_is_its_answer() -> None:
    def missing(ref: str) -> None:
        raise MissingFileError(f"{ref}: not here")

    host = PluginHost()
    host.register(resolver(missing), "alpha")
    with pytest.raises(MissingFileError, match="x:y: not here"):
        host.first("optaned_resolve_model", ref="x:y")


def test_events_reach_every_listener_and_failures_are_logged_on_the_edge(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    moods = iter([True, True, False, True])

    def moody(event: Mapping[str, Any]) -> None:
        if next(moods):
            raise MissingFileError("no mood")

    host = PluginHost()
    host.register(listener(moody), "alpha")
    host.register(listener(lambda event: heard.append(event["kind"])), "zeta")
    with caplog.at_level(logging.INFO):
        for number in range(4):
            host.event({"kind": f"e{number}"})
    assert heard == ["e0", "e1", "e2", "e3"]
    assert [r.getMessage() for r in caplog.records] == [
        "plugin alpha: optaned_event raised MissingFileError: no mood",
        "plugin alpha: optaned_event works again after 2 failures",
        "plugin alpha: optaned_event raised MissingFileError: no mood",
    ]
    assert host.records[0].failures == 3


def test_votes_name_their_plugin_and_unsound_ones_count_as_failures() -> None:
    host = PluginHost(GUARD_GROUP)
    unsound = (Vote(duty=float("nan")), Vote(cooling=2.0), Vote(level="HOT"), "no vote", OSError("gone"), SystemExit(3))  # type: ignore[arg-type]
    for number, vote in enumerate((Vote(level=Level.HOT, reason="window open"), None, Vote(duty=0), *unsound)):
        host.register(voter(vote), f"p{number}")
    votes = host.votes(Snapshot(0.0), PROPOSAL)
    assert votes == (
        Vote(level=Level.HOT, reason="p0: window open"),
        Vote(duty=0, reason="p2: no reason given"),
    )
    assert [r.failures for r in host.records] == [0, 0, 0, 1, 1, 1, 1, 1, 1]
