"""Simulated sensors and fans for demos and tests: temperatures from the configuration, a script over time, or a file.

Knows no hardware. Never beside real PMem: a simulated DIMM protects nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from optaned.api import Driver, hookimpl
from optaned_sim.cooler import SimCoolerOptions, open_cooler
from optaned_sim.sensor import SimSensorOptions, open_sensor

OPTANED_API = (1, 0)


@hookimpl
def optaned_sensors() -> Sequence[Driver]:
    return [
        Driver(
            "sim",
            SimSensorOptions,
            open_sensor,
            summary="simulated DIMMs: a constant, a script, or a file to heat by hand",
            nonblocking=True,
        )
    ]


@hookimpl
def optaned_coolers() -> Sequence[Driver]:
    return [Driver("sim", SimCoolerOptions, open_cooler, summary="a simulated fan that does as told", nonblocking=True)]
