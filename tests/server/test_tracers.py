"""Listeners to the router: who is told, who loses what, and when nobody listens any more."""

from __future__ import annotations

import asyncio

import pytest

from optaned.engine.messages import Choices
from optaned.server.ports import Failure
from optaned.server.tracers import MAX_HELD, Tracers

SOME = Choices(((0, (1,)), (1, (2,))))


def test_the_first_begins_the_last_ends_and_all_hear_the_same() -> None:
    async def story() -> None:
        heard: list[bool] = []
        tracers = Tracers(heard.append)
        one, two = tracers.open(), tracers.open()
        tracers.deliver(SOME)
        assert await anext(one) == await anext(two) == SOME
        await one.aclose()
        await one.aclose()
        assert heard == [True]
        await two.aclose()
        assert heard == [True, False]

    asyncio.run(story())


def test_a_slow_listener_loses_choices_and_knows_how_many() -> None:
    async def story() -> None:
        trace = (tracers := Tracers(lambda _on: None)).open()
        for _ in range(MAX_HELD // 2 + 3):
            tracers.deliver(SOME)
        assert trace.lost == 6
        assert await anext(trace) == SOME
        tracers.deliver(SOME)
        assert trace.lost == 6

    asyncio.run(story())


def test_the_end_of_the_engine_ends_every_trace_after_what_came_before() -> None:
    async def story() -> None:
        heard: list[bool] = []
        tracers = Tracers(heard.append)
        trace = tracers.open()
        waiting = asyncio.ensure_future(anext(trace))
        await asyncio.sleep(0)
        tracers.deliver(SOME)
        tracers.fail_all(Failure("engine_died", "it died"))
        assert await waiting == SOME
        with pytest.raises(Failure):
            await anext(trace)
        await trace.aclose()
        assert heard == [True], "a dead engine is not told to stop listening"

    asyncio.run(story())
