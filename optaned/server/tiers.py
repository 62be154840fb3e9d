"""GET /tiers and POST /tiers/move: what lies where, and moving it by hand. Answered from views; a move is a question."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from optaned.domain.tiers import TierInfo
from optaned.engine.messages import Residency, TierUse
from optaned.server.body import convert, parse_object, read_body
from optaned.server.control import require_admin
from optaned.server.ports import EngineView, Failure, Placed
from optaned.server.replying import json_response
from optaned.server.service import Service


class MoveBody(msgspec.Struct, kw_only=True):
    """What to move: one expert, or without `expert` a whole layer's."""

    do: Literal["promote", "demote", "pin", "unpin"]
    layer: int
    expert: int | None = None


async def tiers(request: Request, service: Service) -> Response:  # noqa: ARG001  every route has this signature
    """GET /tiers: what of the model lies on each tier now, and how much of what is read comes from there."""
    return json_response(tiers_object(service.engine.view))


async def move(request: Request, service: Service) -> Response:
    """POST /tiers/move: move experts by hand. Raises ApiError 403, and Failure `move_refused` with the reason."""
    peer = require_admin(request, service)
    asked = convert(parse_object(await read_body(request, service.settings)), MoveBody)
    which = f"layer {asked.layer}" + ("" if asked.expert is None else f" expert {asked.expert}")
    service.log.info("%s %s, asked by uid=%d (%s) pid=%d", asked.do, which, peer.uid, peer.user, peer.pid)
    pause = service.pause.view
    if pause.paused:
        raise Failure("engine_paused", f"nothing moves while the engine is stopped for heat: {pause.reason}")
    said = await service.engine.move(asked.do, asked.layer, asked.expert)
    return json_response({"do": asked.do, "layer": asked.layer, "expert": asked.expert, "detail": said})


def tiers_object(view: EngineView) -> dict[str, Any]:
    """Return the reply of GET /tiers. Live figures are null until the engine has told them."""
    placed, live = view.placed, view.residency
    plan = placed.plan if placed else None
    return {
        "model": view.model,
        "state": view.state,
        "policy": placed.policy if placed else None,
        "kv_tier": plan.kv_tier if plan else None,
        "notes": list(plan.notes) if plan else [],
        "tiers": [_tier(tier, placed, live) for tier in placed.tiers] if placed else [],
        "routed_bytes_total": live.routed_bytes_total if live else None,
        "skew": live.skew if live else None,
        "moving": live.moving if live else "",
        "move_gbps": live.move_gbps if live else None,
        "smaps_bytes": live.smaps_bytes if live else None,
    }


def _tier(tier: TierInfo, placed: Placed, live: Residency | None) -> dict[str, Any]:
    plan = placed.plan
    use = use_of(live, tier.name)
    return {
        "name": tier.name,
        "driver": tier.driver,
        "kind": tier.kind,
        "numa_node": tier.numa_node,
        "mount": str(tier.mount) if tier.mount else None,
        "read_gbps": tier.read_gbps,
        "capacity_bytes": tier.capacity_bytes,
        "planned_bytes": plan.used_bytes(tier.name),
        "kv_bytes": plan.kv_bytes if plan.kv_tier == tier.name else 0,
        "budget_bytes": use.budget_bytes if use else 0,
        "trunk_bytes": use.trunk_bytes if use else (None if live is None else 0),
        "expert_bytes": use.expert_bytes if use else (None if live is None else 0),
        "experts": use.experts if use else 0,
        "promoted_bytes_total": use.promoted_bytes_total if use else 0,
        "demoted_bytes_total": use.demoted_bytes_total if use else 0,
        "hit_bytes_total": use.hit_bytes_total if use else 0,
        "hit_share": hit_share(use, live),
    }


def use_of(live: Residency | None, name: str) -> TierUse | None:
    """Return a tier's part, None where the engine does not use it or has not told yet."""
    uses: Iterable[TierUse] = live.tiers if live else ()
    return next((use for use in uses if use.name == name), None)


def hit_share(use: TierUse | None, live: Residency | None) -> float | None:
    """Return the share of routed bytes that were read from a tier; None before any was."""
    if live is None or not live.routed_bytes_total:
        return None
    return round(use.hit_bytes_total / live.routed_bytes_total, 6) if use else 0.0
