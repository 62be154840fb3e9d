"""Moves obey the ceiling and the duty, and take at most a tenth of decoding's speed, whatever they cost it."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.residency.budget import ALLOWED_LOSS, Bucket, Governor
from optaned.residency.pace import Pace

MIB = 1 << 20


class World:
    """A machine whose time passes when somebody waits, moves or decodes. Moves slow decoding by `slowdown`."""

    def __init__(self, *, step_s: float = 1.0, slowdown: float = 0.5, copy_gbps: float = 2.0) -> None:
        self.now_s = 0.0
        self.step_s, self.slowdown, self.copy_gbps = step_s, slowdown, copy_gbps
        self.work_left_s: float | None = None
        self.steps = 0
        self.notified = False
        self.pace: Pace | None = None

    def clock(self) -> float:
        return self.now_s

    # The condition variable that Pace waits on.
    def __enter__(self) -> bool:
        return True

    def __exit__(self, *exc_info: object) -> None:
        pass

    def notify_all(self) -> None:
        self.notified = True

    def wait(self, timeout: float | None = None) -> bool:
        self.notified = False
        self.passes(timeout or 0.0, speed=1.0, until_notified=True)
        return True

    def passes(self, wall_s: float, *, speed: float, until_notified: bool = False) -> None:
        """Let time pass while the model decodes at `speed`, step after step."""
        while wall_s > 0 and not (until_notified and self.notified):
            if self.work_left_s is None or self.pace is None:
                self.now_s += wall_s
                return
            needed_s = self.work_left_s / speed
            taken_s = min(wall_s, needed_s)
            self.now_s += taken_s
            wall_s -= taken_s
            self.work_left_s -= taken_s * speed
            if taken_s == needed_s:
                self.pace.end_step()
                self.steps += 1
                self.work_left_s = self.step_s
                self.pace.begin_step(1)

    def decode(self, pace: Pace) -> None:
        self.pace, self.work_left_s = pace, self.step_s
        pace.begin_step(1)

    def move(self, pace: Pace, size_bytes: int = 8 * MIB) -> None:
        assert pace.wait(size_bytes)
        with pace.moving():
            self.passes(size_bytes / (self.copy_gbps * 1e9), speed=1.0 - self.slowdown)


def speed_of(world: World, *, moves: int, ceiling_gbps: float | None = None) -> tuple[float, float]:
    """Return decode speed as a share of the undisturbed one, and GB/s moved, after a while of learning."""
    pace = Pace(ceiling_gbps, clock=world.clock, changed=world)
    world.decode(pace)
    for _ in range(moves // 4):
        world.move(pace)
    began_s, steps, moved = world.now_s, world.steps, pace.moved_bytes
    for _ in range(moves):
        world.move(pace)
    took_s = world.now_s - began_s
    return (world.steps - steps) * world.step_s / took_s, (pace.moved_bytes - moved) / took_s / 1e9


@pytest.mark.parametrize("step_s", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("slowdown", [0.05, 0.2, 0.5, 0.77, 0.95])
def test_decoding_keeps_nine_tenths_of_its_speed(step_s: float, slowdown: float) -> None:
    speed, gbps = speed_of(World(step_s=step_s, slowdown=slowdown), moves=max(400, int(4000 * step_s)))
    assert speed >= 1 - ALLOWED_LOSS - 0.01
    assert gbps > 0


def test_what_hardly_disturbs_moves_faster_than_what_does() -> None:
    _, gentle = speed_of(World(step_s=0.1, slowdown=0.1), moves=2000)
    _, rough = speed_of(World(step_s=0.1, slowdown=0.8), moves=500)
    assert gentle > 2.5 * rough


def test_the_ceiling_holds_beside_decoding_and_alone() -> None:
    assert speed_of(World(step_s=0.1, slowdown=0.0), moves=500, ceiling_gbps=0.25)[1] <= 0.26
    world = World()
    pace = Pace(0.5, clock=world.clock, changed=world)
    for _ in range(100):
        world.move(pace)
    assert 100 * 8 * MIB / world.now_s / 1e9 == pytest.approx(0.5, rel=0.05)
    assert pace.rate_gbps == pytest.approx(0.5)


def test_an_idle_engine_is_not_spared() -> None:
    world = World()
    pace = Pace(clock=world.clock, changed=world)
    for _ in range(50):
        world.move(pace)
    assert pace.share == 1.0
    assert pace.rate_gbps == pytest.approx(world.copy_gbps, rel=0.01)


def test_soon_after_a_step_the_engine_is_not_idle_yet() -> None:
    world = World()
    pace = Pace(clock=world.clock, changed=world)
    pace.begin_step(1)
    world.now_s += 1.0
    pace.end_step()
    world.now_s += 0.05
    assert pace.share < 0.2
    world.now_s += 1.0
    assert pace.share == 1.0


@pytest.mark.parametrize("duty", [0.25, 0.5])
def test_the_duty_scales_the_ceiling(duty: float) -> None:
    world = World()
    pace = Pace(1.0, lambda: duty, clock=world.clock, changed=world)
    for _ in range(100):
        world.move(pace)
    assert 100 * 8 * MIB / world.now_s / 1e9 == pytest.approx(duty, rel=0.05)


def test_nothing_moves_at_duty_zero_until_it_rises() -> None:
    world = World()
    pace = Pace(1.0, lambda: 0.0 if world.now_s < 30 else 1.0, clock=world.clock, changed=world)
    assert pace.rate_gbps == 0
    assert pace.wait(MIB)
    assert 30 <= world.now_s < 31


def test_closing_wakes_a_mover_that_waits() -> None:
    asked = threading.Event()

    def duty() -> float:
        asked.set()
        return 0.0

    pace, answers = Pace(1.0, duty), []
    mover = threading.Thread(target=lambda: answers.append(pace.wait(MIB)))
    mover.start()
    assert asked.wait(10)
    pace.close()
    mover.join(10)
    assert answers == [False]
    assert pace.wait(MIB) is False


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 20), st.integers(1, 4)), max_size=60))
def test_whatever_steps_took_the_share_is_a_share(steps: list[tuple[float, float, int]]) -> None:
    governor = Governor()
    for step_s, moving_s, rows in steps:
        governor.observe(step_s, moving_s, rows)
        assert 0.05 <= governor.share <= 1.0
        assert 0.0 <= governor.slowdown <= 1.0


def test_steps_are_compared_with_steps_of_as_many_rows() -> None:
    governor = Governor()
    for _ in range(10):
        governor.observe(1.0, 0.0, 1)
        governor.observe(3.0, 0.0, 8)
    for _ in range(10):
        governor.observe(3.3, 1.5, 8)
    assert governor.slowdown == pytest.approx(0.2)


@given(st.floats(0.1, 100), st.floats(0, 50), st.lists(st.floats(0, 5), max_size=30))
def test_a_bucket_never_gives_more_than_its_rate_and_burst(rate: float, most: float, pauses: list[float]) -> None:
    bucket, now_s, spent = Bucket(most, 0.0), 0.0, 0.0
    for pause in pauses:
        now_s += pause
        bucket = bucket.refilled(rate, most, now_s)
        if bucket.wait_s(rate) <= 0:
            bucket = bucket.without(3.0)
            spent += 3.0
    assert spent <= most + rate * now_s + 3.0 + 1e-6
