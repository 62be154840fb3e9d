"""When to start and when to kill a guard of our own. Pure: knows no process, no file and no clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# A child that has not said its first word yet: Python starts in under a second, but not on a busy machine.
STARTING_S = 15.0
SETTLED_S = 10.0
# One that cannot even start (a bad configuration) is not worth a core; one that works between deaths is.
MOST_BACKOFF_S = 30.0
MOST_BACKOFF_SPOKEN_S = 2.0


class Step(Enum):
    """What to do about the guard now."""

    WAIT = "wait"
    START = "start"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Charge:
    """What is known of our guard. Times are monotonic; `spoke` says that this child's word has been fresh once."""

    started_s: float | None = None
    spoke: bool = False
    silent_since_s: float | None = None
    start_at_s: float = 0.0
    backoff_s: float = 0.2
    deaths: int = 0


def next_step(charge: Charge, *, is_fresh: bool, is_alive: bool, now_s: float, stale_after_s: float) -> Step:
    """Decide from a charge and what is seen of it: is a word fresh, does our child live."""
    if is_fresh:
        return Step.WAIT
    if not is_alive:
        return Step.START if now_s >= charge.start_at_s else Step.WAIT
    if not charge.spoke:
        return Step.KILL if charge.started_s is None or now_s - charge.started_s > STARTING_S else Step.WAIT
    silent_s = 0.0 if charge.silent_since_s is None else now_s - charge.silent_since_s
    return Step.KILL if silent_s > stale_after_s else Step.WAIT


def after_death(charge: Charge, *, now_s: float) -> Charge:
    """Return the charge after its child has ended: at once again when it worked for a while, else with patience."""
    lived_s = 0.0 if charge.started_s is None else now_s - charge.started_s
    if charge.spoke and lived_s >= SETTLED_S:
        return Charge(start_at_s=now_s, deaths=charge.deaths + 1)
    most_s = MOST_BACKOFF_SPOKEN_S if charge.spoke else MOST_BACKOFF_S
    delay_s = min(charge.backoff_s, most_s)
    return Charge(start_at_s=now_s + delay_s, backoff_s=min(delay_s * 2, most_s), deaths=charge.deaths + 1)
