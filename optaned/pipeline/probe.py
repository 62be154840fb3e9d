"""Stage 1: ask every declared tier what it has. Changes nothing, measures nothing."""

from __future__ import annotations

from dataclasses import replace

from optaned.config.lookup import ResolvedDriver
from optaned.config.resolve import ResolvedConfig
from optaned.domain.tiers import TierInfo
from optaned.errors import PluginError
from optaned.hooks.drivers import Device, Env, Offloads
from optaned.pipeline.bandwidth import with_bandwidth
from optaned.pipeline.stage import stage
from optaned.system.commands import runner
from optaned.system.paths import state_dir


def probe(resolved: ResolvedConfig, env: Env) -> tuple[TierInfo, ...]:
    """Return what each tier's driver found, in the configuration's order. Raises OptanedError where one fails.

    Bandwidth that no tier declares is what was measured there before.
    """
    env = replace(env, devices=lambda: _devices(resolved, env))
    return with_bandwidth([_probe_one(tier, env) for tier in resolved.tiers.values()], state_dir())


def _devices(resolved: ResolvedConfig, env: Env) -> tuple[Device, ...]:
    """Return the backend's devices. Asked only by tiers that are devices: opening a model library takes a moment."""
    backend = resolved.backend.open(env)
    try:
        return backend.devices() if isinstance(backend, Offloads) else ()
    finally:
        backend.close()


def _probe_one(tier: ResolvedDriver, env: Env) -> TierInfo:
    with stage("probe", f"tiers.{tier.name} (driver {tier.driver.name})"):
        opened = tier.open(replace(env, run=runner(tier.driver.needs.commands)))
        try:
            found = opened.probe()
        finally:
            opened.close()
        if not isinstance(found, TierInfo) or found.name != tier.name:
            raise PluginError(f"it returned {found!r} instead of the tier's TierInfo; tell its author")
        return found
