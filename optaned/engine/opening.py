"""From the first frame to an open backend: plugins, options, vocabulary or model, chat format. Knows no scheduler.

Everything here raises OptanedError, one line a fault; trying the same again would not help.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from optaned.domain.generation import VocabularyInfo
from optaned.engine.messages import Open
from optaned.errors import ConfigError
from optaned.hooks.drivers import Backend, ChatFormat, ChatSetting, Driver, Env, LoadRequest, Model, Vocabulary
from optaned.hooks.host import PluginHost

# The chat format that reads the model's own template.
AUTO_CHAT_FORMAT = "jinja"


class Opening:
    """What an `Open` frame asks for, opened step by step."""

    def __init__(self, wanted: Open) -> None:
        self._wanted = wanted
        folder = wanted.plugin_folder
        self._host = PluginHost.discover(
            disabled=wanted.disabled_plugins, path=None if folder is None else Path(folder)
        )

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(Path(name) for name in self._wanted.files)

    def backend(self) -> Backend:
        """Return the backend, opened with its validated options."""
        driver = self._host.driver("backends", self._wanted.backend)
        backend: Backend = driver.open(driver.name, _validated(driver, self._wanted.options), _env(driver))
        return backend

    def vocabulary(self, backend: Backend) -> Vocabulary:
        return backend.vocabulary(self.files)

    def model(self, backend: Backend, progress: Callable[[float], bool]) -> Model:
        """Load the weights, which may take an hour; `progress(fraction)` returns False to give up."""
        wanted = self._wanted
        request = LoadRequest(
            files=self.files,
            context=wanted.context,
            slots=wanted.slots,
            threads=wanted.threads,
            batch=wanted.batch,
            kv_cache=wanted.kv_cache,
        )
        return backend.load(request, progress)

    def chat_format(self, vocabulary: VocabularyInfo) -> tuple[str, ChatFormat]:
        """Return the chat format and its driver's name ("auto" is resolved here)."""
        wanted = self._wanted.chat_format
        driver = self._host.driver("chat_formats", AUTO_CHAT_FORMAT if wanted == "auto" else wanted)
        chat: ChatFormat = driver.open(driver.name, ChatSetting(vocabulary), _env(driver))
        return driver.name, chat


def _env(driver: Driver) -> Env:
    return Env(log=logging.getLogger(f"optaned.{driver.name}"))


def _validated(driver: Driver, options: dict[str, Any]) -> Any:
    # Options crossed the socket as plain data, so that a list may stand for a tuple, as in JSON.
    try:
        return driver.options.model_validate_json(msgspec.json.encode(options))
    except ValidationError as error:
        table = f"engine.{driver.name}"
        lines = [f"{table}.{'.'.join(map(str, fault['loc']))}: {fault['msg'].lower()}" for fault in error.errors()]
        raise ConfigError(*lines) from error
