"""What counts as a row of deaths, and which refusals are final; children are scripted, the clock is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from optaned.domain.generation import VocabularyInfo
from optaned.engine import keeper as module
from optaned.engine.keeper import Keeper, Patience
from optaned.engine.messages import FromWorker, Open, Opened, Refused, Role, ToWorker

OPENED = Opened(VocabularyInfo(size=1), None, "")
NO_MEMORY = Refused(("no memory for a cache of 8 GiB",), 69)
TOO_OLD = Refused(("the library is too old",), 65)
WANTED = Open(
    role=Role.ENGINE, backend="x", options={}, files=(), context=1, slots=1, threads=1, batch=1, kv_cache="f16"
)


class Life:
    """What a scripted child says, how long it lives and how it ends."""

    def __init__(self, *says: FromWorker, lives_s: float = 0.0) -> None:
        self.says, self.lives_s = says, lives_s


class Listener:
    def __init__(self) -> None:
        self.told: list[str] = []

    def spawned(self, pid: int) -> None:
        pass

    def message(self, message: FromWorker) -> None:
        pass

    def died(self, reason: str, *, delay_s: float) -> None:
        self.told.append(f"died: {reason}")

    def refused(self, refusal: Refused) -> None:
        self.told.append(f"refused: {refusal.lines[0]}")

    def gave_up(self, reason: str, *, deaths: int) -> None:
        self.told.append(f"gave up after {deaths}")


def keep(monkeypatch: pytest.MonkeyPatch, lives: Sequence[Life], **patience: float) -> list[str]:
    """Return what the listener of a keeper hears over these lives; the last one must be the end."""
    now_s = 0.0
    coming = iter(lives)

    class Child:
        pid = 1

        def __init__(self, life: Life) -> None:
            self._life = life

        @classmethod
        async def spawn(cls, take: Callable[[FromWorker], None], _surroundings: object) -> Child:
            life = next(coming)
            for message in life.says:
                take(message)
            return cls(life)

        def send(self, message: ToWorker) -> None:
            pass

        def kill(self) -> None:
            pass

        async def wait(self) -> str:
            nonlocal now_s
            now_s += self._life.lives_s
            return "was killed"

    monkeypatch.setattr(module, "Child", Child)
    listener = Listener()

    async def story() -> None:
        kept = Keeper(
            WANTED, listener, patience=Patience(first_delay_s=0, max_deaths=3, **patience), clock=lambda: now_s
        )
        kept.start()
        async with asyncio.timeout(10):
            while not listener.told or not listener.told[-1].startswith(("gave up", "refused")):  # noqa: ASYNC110
                await asyncio.sleep(0)
        await kept.stop()

    asyncio.run(story())
    return listener.told


def test_three_deaths_in_a_row_are_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(monkeypatch, [Life(OPENED)] * 3) == ["died: was killed"] * 2 + ["gave up after 3"]


def test_a_long_life_begins_the_row_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = [Life(OPENED), Life(OPENED), Life(OPENED, lives_s=700), Life(OPENED), Life(OPENED)]
    assert keep(monkeypatch, lives) == ["died: was killed"] * 4 + ["gave up after 3"]


def test_a_long_time_of_loading_is_no_life(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(monkeypatch, [Life(lives_s=7000)] * 3)[-1] == "gave up after 3"


def test_a_first_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(monkeypatch, [Life(NO_MEMORY)]) == ["refused: no memory for a cache of 8 GiB"]


def test_a_lack_of_memory_after_a_death_is_tried_again_with_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = [Life(OPENED), Life(NO_MEMORY), Life(OPENED, lives_s=700), Life(OPENED), Life(OPENED)]
    told = keep(monkeypatch, lives)
    assert told[1] == "died: could not be loaded again: no memory for a cache of 8 GiB"
    assert told[-1] == "gave up after 3"


def test_any_other_refusal_is_final_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(monkeypatch, [Life(OPENED), Life(TOO_OLD)])[-1] == "refused: the library is too old"
