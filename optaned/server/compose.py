"""From a resolved configuration to the parts of a server: first frames, limits, parsers of answers. Starts nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from optaned.config.resolve import ResolvedConfig
from optaned.domain.generation import VocabularyInfo
from optaned.engine.messages import Open, Role
from optaned.errors import OptanedError
from optaned.hooks.drivers import ChatFormat, ChatParser, ChatSetting, Env
from optaned.hooks.host import PluginHost
from optaned.pipeline.run import Prepared, prepare
from optaned.server.carried_out import placement_of
from optaned.server.ports import EnginePort, Placed
from optaned.server.settings import ServerSettings
from optaned.server.supervisor import ModelSpec

log = logging.getLogger("optaned.server")


def model_specs(
    resolved: ResolvedConfig, *, word_path: Path | None, report: Callable[[str], None]
) -> dict[str, ModelSpec]:
    """Return the declared models that can be loaded, each run through the pipeline up to the engine.

    Raises OptanedError for the default model; another one that does not fit is logged and left out.
    """
    specs = {}
    for name in sorted(resolved.models, key=lambda name: (name != resolved.default_model, name)):
        try:
            prepared = prepare(resolved, Env(log=log), model=name, report=report)
            specs[name] = _spec(resolved, name, prepared, word_path)
        except OptanedError as error:
            if name == resolved.default_model:
                raise
            for line in error.lines:
                log.warning("the model %s cannot be loaded: %s", name, line)
    return specs


def _spec(resolved: ResolvedConfig, name: str, prepared: Prepared, word_path: Path | None) -> ModelSpec:
    request = prepared.request
    placement = placement_of(resolved, prepared)

    def frame(role: Role) -> Open:
        plugins = resolved.config.plugins
        return Open(
            role=role,
            backend=resolved.backend.driver.name,
            options=resolved.backend.options.model_dump(mode="json"),
            files=tuple(str(path) for path in request.files),
            context=request.context,
            slots=request.slots,
            threads=request.threads,
            batch=request.batch,
            kv_cache=request.kv_cache,
            chat_format=resolved.models[name].chat_format,
            plugin_folder=None if plugins.path is None else str(plugins.path),
            disabled_plugins=plugins.disable,
            word_path=None if word_path is None else str(word_path),
            placement=placement if role is Role.ENGINE else None,
        )

    return ModelSpec(name, frame(Role.ENGINE), frame(Role.TOKENIZER), _placed(resolved, prepared))


def _placed(resolved: ResolvedConfig, prepared: Prepared) -> Placed | None:
    if prepared.index is None or prepared.plan is None:
        return None
    return Placed(resolved.policy.driver.name, prepared.tiers, prepared.index, prepared.plan)


def server_settings(resolved: ResolvedConfig) -> ServerSettings:
    """Return the limits of the HTTP side."""
    server = resolved.config.server
    return ServerSettings(
        admin_group=server.admin_group,
        max_body_bytes=server.max_body,
        header_timeout_s=server.header_timeout_s,
        body_timeout_s=server.body_timeout_s,
        ping_s=server.ping_s,
    )


class Parsers:
    """Opens a parser for each answer, with the chat format of the model that is loaded at the moment."""

    def __init__(self, host: PluginHost, engine: EnginePort) -> None:
        self._host = host
        self._engine = engine
        self._opened: Mapping[tuple[str, int], ChatFormat] = {}

    def __call__(self, rendered: str) -> ChatParser:
        view = self._engine.view
        vocabulary = view.vocabulary or VocabularyInfo(size=0)
        key = (view.chat_format, id(vocabulary))
        if key not in self._opened:
            driver = self._host.driver("chat_formats", view.chat_format)
            env = Env(log=logging.getLogger(f"optaned.{driver.name}"))
            self._opened = {key: driver.open(driver.name, ChatSetting(vocabulary), env)}
        return self._opened[key].parser(rendered)
