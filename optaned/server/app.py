"""The table of routes: path, method, function. Knows the ports and nothing behind them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from optaned.hooks.drivers import ChatParser
from optaned.server import chat, completions, control, embeddings, info, metrics, text, tiers, trace
from optaned.server.envelope import Envelope
from optaned.server.ports import EnginePort, Failure, PausePort, TokenizerPort
from optaned.server.service import IgnoredNames, Service
from optaned.server.settings import ServerSettings

Endpoint = Callable[[Request, Service], Awaitable[Response]]

_ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("POST", "/v1/chat/completions", chat.chat_completions),
    ("POST", "/v1/completions", completions.completions),
    ("POST", "/v1/embeddings", embeddings.embeddings),
    ("GET", "/v1/models", info.models),
    ("GET", "/v1/models/{name:path}", info.model),
    ("GET", "/health", info.health),
    ("GET", "/v1/health", info.health),
    ("GET", "/ready", info.ready),
    ("GET", "/version", info.version_of),
    ("GET", "/props", info.props),
    ("GET", "/slots", info.slots),
    ("GET", "/metrics", metrics.metrics),
    ("POST", "/tokenize", text.tokenize),
    ("POST", "/detokenize", text.detokenize),
    ("POST", "/apply-template", text.apply_template),
    ("POST", "/load", control.load),
    ("POST", "/unload", control.unload),
    ("GET", "/tiers", tiers.tiers),
    ("POST", "/tiers/move", tiers.move),
    ("POST", "/trace", trace.trace),
)


class App:
    """The ASGI application. `end_streams` is how a stopping server gives every open answer its last event."""

    def __init__(self, service: Service) -> None:
        self._service = service
        routes = [_route(method, path, endpoint, service) for method, path, endpoint in _ROUTES]
        self._app = Envelope(Router(routes, redirect_slashes=False, default=_not_found), service.log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def end_streams(self) -> None:
        """End all open answers with the code `shutting_down`, and refuse new ones."""
        self._service.exchanges.end_all(Failure("shutting_down", "the server is stopping"))


def build_app(
    engine: EnginePort,
    tokenizer: TokenizerPort,
    pause: PausePort,
    *,
    parsers: Callable[[str], ChatParser],
    models: Sequence[str],
    settings: ServerSettings | None = None,
    log: logging.Logger | None = None,
) -> App:
    """Return the application. `models` are all declared names; `parsers(rendered)` opens a parser for one answer."""
    log = log or logging.getLogger("optaned.server.http")
    service = Service(
        engine=engine,
        tokenizer=tokenizer,
        pause=pause,
        parsers=parsers,
        models=tuple(models),
        settings=settings or ServerSettings(),
        log=log,
        ignored=IgnoredNames(log),
    )
    return App(service)


def _route(method: str, path: str, endpoint: Endpoint, service: Service) -> Route:
    async def answer(request: Request) -> Response:
        return await endpoint(request, service)

    return Route(path, answer, methods=[method])


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001  the signature is ASGI's
    raise HTTPException(404)
