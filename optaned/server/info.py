"""Questions about the server itself, answered from views alone: no child is asked, so none can delay them."""

from __future__ import annotations

import dataclasses
import time
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from optaned.api import API
from optaned.domain.generation import SlotState, SlotView
from optaned.server.faults import ApiError
from optaned.server.ports import EngineState, EngineView
from optaned.server.replying import json_response
from optaned.server.service import Service

_VERSION = version("optaned")


async def health(request: Request, service: Service) -> Response:  # noqa: ARG001  every route has this signature
    """GET /health: this process lives. Always 200."""
    return json_response({"status": "ok"})


async def ready(request: Request, service: Service) -> Response:  # noqa: ARG001
    """GET /ready: 200 when a model can answer, else 503; both say the state and what heat does to it."""
    view = service.engine.view
    is_ready = view.state is EngineState.READY
    payload = {
        "ready": is_ready,
        "state": view.state,
        "model": view.model,
        "fraction": round(view.fraction, 4),
        "detail": view.detail,
        "engine_pid": view.pid,
        "deaths": view.deaths,
        "waiting": view.waiting,
        "active": view.active,
        "last_progress_age_s": view.last_progress_age_s,
        "thermal": thermal(service),
    }
    return json_response(payload, 200 if is_ready else 503, None if is_ready else {"retry-after": "5"})


def thermal(service: Service) -> dict[str, Any]:
    """Return level, duty and reason as JSON; level null when the guard is silent, `for_s` how long it has been so."""
    pause = service.pause.view
    return {
        "level": None if pause.level is None else pause.level.name.lower(),
        "duty": pause.duty,
        "reason": pause.reason,
        "paused": pause.paused,
        "for_s": round(max(time.monotonic() - pause.since_s, 0.0), 3),
        "word_age_s": pause.word_age_s,
    }


async def version_of(request: Request, service: Service) -> Response:  # noqa: ARG001
    """GET /version: of the server, of the plugin API and of the model library."""
    info = service.engine.view.info
    return json_response({"version": _VERSION, "api": f"{API[0]}.{API[1]}", "library": info.library if info else None})


async def slots(request: Request, service: Service) -> Response:  # noqa: ARG001
    """GET /slots: what each slot does; no text and no tokens."""
    return json_response([_slot(slot) for slot in service.engine.view.slots])


def _slot(slot: SlotView) -> dict[str, Any]:
    """Return a slot as JSON; `id` and `is_processing` are what users of llama-server look for."""
    return {"id": slot.slot, "is_processing": slot.state is not SlotState.IDLE, **dataclasses.asdict(slot)}


async def props(request: Request, service: Service) -> Response:  # noqa: ARG001
    """GET /props: the loaded model, in the names that users of local servers know."""
    view = service.engine.view
    info, vocabulary = view.info, view.vocabulary
    return json_response(
        {
            "model": view.model,
            "model_alias": view.model,
            "state": view.state,
            "total_slots": info.slots if info else 0,
            "n_ctx": info.context if info else 0,
            "default_generation_settings": {"n_ctx": info.context if info else 0},
            "chat_format": view.chat_format,
            "chat_template": (vocabulary.template or "") if vocabulary else "",
            "modalities": {"vision": False, "audio": False},
            "build_info": f"optaned {_VERSION}",
            "info": info and dataclasses.asdict(info),
        }
    )


async def models(request: Request, service: Service) -> Response:  # noqa: ARG001
    """GET /v1/models: every declared model, and which of them is loaded."""
    view = service.engine.view
    return json_response({"object": "list", "data": [_model(name, view, service) for name in service.models]})


async def model(request: Request, service: Service) -> Response:
    """GET /v1/models/{id}: one of them. Raises ApiError 404."""
    name = request.path_params["name"]
    if name not in service.models:
        text = f"the model {name[:80]!r} is not declared; declared are: {', '.join(service.models)}"
        raise ApiError(404, text, code="model_not_found", param="model")
    return json_response(_model(name, service.engine.view, service))


def _model(name: str, view: EngineView, service: Service) -> dict[str, Any]:
    is_current = name == view.model
    found = {
        "id": name,
        "object": "model",
        "created": service.started_s,
        "owned_by": "optaned",
        "state": view.state if is_current else EngineState.UNLOADED,
    }
    if is_current and view.info:
        found["meta"] = {
            "n_ctx": view.info.context,
            "n_embd": view.info.embedding_size,
            "n_params": view.info.parameters,
            "size": view.info.size_bytes,
        }
    return found
