"""What a guard runs on: everything resolved, nothing opened. Knows names, drivers and the policy, no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from optaned.config.lookup import ResolvedDriver
from optaned.config.resolve import ResolvedGuard
from optaned.domain.thermal import Proposal, Snapshot, Vote
from optaned.hooks.host import PluginHost
from optaned.thermal.policy import SensorPolicy, ThermalPolicy

Votes = Callable[[Snapshot, Proposal], Sequence[Vote]]


def no_votes(snapshot: Snapshot, proposal: Proposal) -> Sequence[Vote]:  # noqa: ARG001  the signature is the contract
    """Abstain: the voice of a guard without plugins that vote."""
    return ()


@dataclass(frozen=True)
class GuardPlan:
    """All that a guard is told. A word is valid for `word_valid_s`; only `service_uid` may hand over an engine."""

    word_path: Path
    state_dir: Path
    service_uid: int
    policy: ThermalPolicy = field(default_factory=ThermalPolicy)
    sensors: Mapping[str, ResolvedDriver] = field(default_factory=dict)
    coolers: Mapping[str, ResolvedDriver] = field(default_factory=dict)
    votes: Votes = no_votes
    word_valid_s: float = 2.0
    act_after_s: float = 0.1


def policy_of(resolved: ResolvedGuard) -> ThermalPolicy:
    """Return the governor's policy as the configuration states it."""
    thermal = resolved.config.thermal
    return ThermalPolicy(
        warm_headroom_celsius=thermal.warm_headroom_celsius,
        hot_headroom_celsius=thermal.hot_headroom_celsius,
        critical_headroom_celsius=thermal.critical_headroom_celsius,
        trip_headroom_celsius=thermal.trip_headroom_celsius,
        default_limit_celsius=thermal.limit_celsius,
        stale_after_s=thermal.stale_after_s,
        tick_s=thermal.tick_s,
        shortest_tick_s=min(ThermalPolicy().shortest_tick_s, thermal.tick_s),
        sensors={
            name: SensorPolicy(required=table.required, limit_celsius=table.limit_celsius)
            for name, table in resolved.config.sensors.items()
        },
    )


def plan_guard(
    resolved: ResolvedGuard, host: PluginHost, *, word_path: Path, state_dir: Path, service_uid: int
) -> GuardPlan:
    """Return what a guard on this configuration runs on."""
    return GuardPlan(
        word_path=word_path,
        state_dir=state_dir,
        service_uid=service_uid,
        policy=policy_of(resolved),
        sensors=resolved.sensors,
        coolers=resolved.coolers,
        votes=host.votes,
    )
