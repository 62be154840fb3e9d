"""From the first frame to an open backend: plugins, options, vocabulary or model, chat format. Knows no scheduler.

Everything here raises OptanedError, one line a fault; trying the same again would not help.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from optaned.domain.generation import VocabularyInfo
from optaned.domain.model import ModelIndex
from optaned.engine.declared import env_of, validated
from optaned.engine.joining import Joining
from optaned.engine.messages import Open
from optaned.errors import ConfigError, ModelFileError
from optaned.hooks.drivers import (
    Backend,
    ChatFormat,
    ChatSetting,
    LoadRequest,
    Model,
    Offload,
    Offloading,
    Offloads,
    Vocabulary,
)
from optaned.hooks.host import PluginHost
from optaned.index import read_index

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
        options = validated(driver, self._wanted.options, f"engine.{driver.name}")
        backend: Backend = driver.open(driver.name, options, env_of(driver))
        return backend

    @cached_property
    def index(self) -> ModelIndex | None:
        """Return the model's index where a plan was made from one. Raises ModelFileError when the files changed since."""
        placement = self._wanted.placement
        if placement is None:
            return None
        index = read_index(self.files)
        if index.digest != placement.digest:
            raise ModelFileError(f"{self.files[0]}: the model's files changed since it was planned; restart the server")
        return index

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
            # With it the backend watches the router, which costs a little: only where experts may move.
            index=self.index if wanted.placement is not None and wanted.placement.tiers else None,
            offload=self._offload(backend),
        )
        return backend.load(request, progress)

    def _offload(self, backend: Backend) -> tuple[Offload, ...]:
        """Return what the plan's devices take. Raises ConfigError for a tier that offloads nothing."""
        placement = self._wanted.placement
        specs = () if placement is None else placement.devices
        found = []
        for spec in specs:
            driver = self._host.driver("tiers", spec.driver)
            env = replace(env_of(driver), devices=backend.devices if isinstance(backend, Offloads) else tuple)
            tier = driver.open(spec.name, validated(driver, spec.options, f"tiers.{spec.name}"), env)
            if not isinstance(tier, Offloading):
                raise ConfigError(
                    f"placement.promote_to: {spec.name} (driver {spec.driver}) takes nothing from a backend"
                )
            found.append(tier.offload())
        return tuple(found)

    def joining(self, stack: ExitStack) -> Joining | None:
        """Return what joins the loaded model to its tiers; None without a plan."""
        if self._wanted.placement is None or self.index is None:
            return None
        return Joining(self._wanted.placement, self._host, self.index, stack)

    def chat_format(self, vocabulary: VocabularyInfo) -> tuple[str, ChatFormat]:
        """Return the chat format and its driver's name ("auto" is resolved here)."""
        wanted = self._wanted.chat_format
        driver = self._host.driver("chat_formats", AUTO_CHAT_FORMAT if wanted == "auto" else wanted)
        chat: ChatFormat = driver.open(driver.name, ChatSetting(vocabulary), env_of(driver))
        return driver.name, chat
