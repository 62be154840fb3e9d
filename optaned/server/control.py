"""Routes that change something: /load and /unload. For administrators alone, each use logged with who asked."""

from __future__ import annotations

import os

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from optaned.server.body import convert, parse_object, read_body
from optaned.server.faults import ApiError
from optaned.server.replying import json_response
from optaned.server.service import Service
from optaned.system.peers import Peer


class LoadBody(msgspec.Struct, kw_only=True):
    """Which declared model to load."""

    model: str


def may_control(peer: Peer | None, admin_group: str) -> bool:
    """Say whether a peer may use control routes: root, the daemon's own user, members of the group.

    No peer (a connection that is no Unix socket) may not.
    """
    return peer is not None and (peer.uid in (0, os.geteuid()) or peer.is_in(admin_group))


async def load(request: Request, service: Service) -> Response:
    """POST /load {"model"}: begin to load a declared model; /ready tells the progress. Raises ApiError 403 and 404."""
    peer = require_admin(request, service)
    asked = convert(parse_object(await read_body(request, service.settings)), LoadBody)
    if asked.model not in service.models:
        text = f"the model {asked.model[:80]!r} is not declared; declared are: {', '.join(service.models)}"
        raise ApiError(404, text, code="model_not_found", param="model")
    service.log.info("load %s, asked by uid=%d (%s) pid=%d", asked.model, peer.uid, peer.user, peer.pid)
    await service.engine.load(asked.model)
    return json_response({"model": asked.model, "state": service.engine.view.state})


async def unload(request: Request, service: Service) -> Response:
    """POST /unload: free the memory; answers that run end with an error. Raises ApiError 403."""
    peer = require_admin(request, service)
    service.log.info("unload, asked by uid=%d (%s) pid=%d", peer.uid, peer.user, peer.pid)
    await service.engine.unload()
    return json_response({"model": None, "state": service.engine.view.state})


def require_admin(request: Request, service: Service) -> Peer:
    """Return who asks. Raises ApiError 403 for anybody who may not control."""
    peer: Peer | None = getattr(request.state, "peer", None)
    group = service.settings.admin_group
    if peer is not None and may_control(peer, group):
        return peer
    service.log.warning("%s refused to uid=%s", request.url.path, "?" if peer is None else peer.uid)
    text = f"only root and members of the group {group} may do this; join it with: sudo usermod -aG {group} $USER"
    raise ApiError(403, text, code="not_an_administrator")
