"""Driving coolers: one dead fan sets the others to full."""

from __future__ import annotations

from optaned.config.lookup import ResolvedDriver
from optaned.guard.acting import Coolers
from optaned.hooks.drivers import Driven, Driver, Env, Options


class Fan:
    def __init__(self) -> None:
        self.demand = 0.0
        self.is_dead = False
        self.released = False

    def open(self, name: str, options: Options, env: Env) -> Fan:
        return self

    def drive(self, demand: float) -> Driven:
        if self.is_dead:
            raise OSError(5, "Input/output error")
        self.demand = demand
        return Driven(demand, demand)

    def release(self) -> None:
        if self.is_dead:
            raise OSError(5, "Input/output error")
        self.released = True


def cool_with(**fans: Fan) -> Coolers:
    declared = {name: ResolvedDriver(name, Driver("fan", Options, fan.open), Options()) for name, fan in fans.items()}
    return Coolers(declared, lambda source: Env())


def test_all_fans_get_the_demand() -> None:
    left, right = Fan(), Fan()
    assert cool_with(left=left, right=right).drive(0.4) == ()
    assert (left.demand, right.demand) == (0.4, 0.4)


def test_a_dead_fan_sets_the_others_to_full_and_is_tried_again() -> None:
    left, right = Fan(), Fan()
    coolers = cool_with(left=left, right=right)
    right.is_dead = True
    assert coolers.drive(0.4) == ("right",)
    assert left.demand == 1.0
    right.is_dead = False
    assert coolers.drive(0.4) == ()
    assert (left.demand, right.demand) == (0.4, 0.4)


def test_release_reaches_every_fan_whatever_another_does() -> None:
    left, right = Fan(), Fan()
    coolers = cool_with(left=left, right=right)
    coolers.drive(0.1)
    left.is_dead = True
    coolers.release()
    assert right.released
