"""What a guard runs on: everything resolved, nothing opened. Knows names, drivers and the policy, no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optaned.domain.thermal import Proposal, Snapshot, Vote
from optaned.hooks.drivers import Driver
from optaned.thermal.policy import ThermalPolicy

Votes = Callable[[Snapshot, Proposal], Sequence[Vote]]


def no_votes(snapshot: Snapshot, proposal: Proposal) -> Sequence[Vote]:  # noqa: ARG001  the signature is the contract
    return ()


@dataclass(frozen=True)
class Fitting:
    """A driver with its validated options, under the name of its TOML table."""

    name: str
    driver: Driver
    options: Any


@dataclass(frozen=True)
class GuardPlan:
    """All that a guard is told. A word is valid for `word_valid_s`; only `service_uid` may hand over an engine."""

    word_path: Path
    state_dir: Path
    service_uid: int
    policy: ThermalPolicy = field(default_factory=ThermalPolicy)
    sensors: Mapping[str, Fitting] = field(default_factory=dict)
    coolers: Mapping[str, Fitting] = field(default_factory=dict)
    votes: Votes = no_votes
    word_valid_s: float = 2.0
    act_after_s: float = 0.1
