"""What every route works with: the ports, the settings, and the questions all of them ask first."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from optaned.domain.generation import ModelInfo
from optaned.domain.thermal import Level
from optaned.hooks.drivers import ChatParser
from optaned.server.exchange import Exchanges
from optaned.server.faults import ApiError, bad_request
from optaned.server.ports import EnginePort, Failure, PausePort, TokenizerPort
from optaned.server.settings import ServerSettings

# Names come from clients: a bound keeps a hostile one from filling the memory and the log.
_NAMES_MAX = 200


class IgnoredNames:
    """Parameters that have no effect here: each is logged once, by name."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._seen: set[str] = set()

    def note(self, names: set[str]) -> None:
        for name in sorted(names - self._seen)[: _NAMES_MAX - len(self._seen)]:
            self._seen.add(name)
            self._log.info("parameter %s has no effect and is ignored", ascii(name[:40]))


@dataclass(frozen=True)
class Service:
    """The ports behind the routes. `models` are all declared names; `parsers(rendered)` opens one answer's parser."""

    engine: EnginePort
    tokenizer: TokenizerPort
    pause: PausePort
    parsers: Callable[[str], ChatParser]
    models: tuple[str, ...]
    settings: ServerSettings
    log: logging.Logger
    ignored: IgnoredNames
    exchanges: Exchanges = field(default_factory=Exchanges)
    started_s: int = field(default_factory=lambda: int(time.time()))

    def require_model(self, asked: str | None) -> tuple[str, ModelInfo]:
        """Return name and facts of the loaded model. Raises ApiError 404 for another one, Failure when none answers."""
        view = self.engine.view
        if asked and asked != view.model and (view.model is not None or asked not in self.models):
            loaded = f"{view.model} is loaded" if view.model else f"declared are: {', '.join(self.models)}"
            text = f"the model {asked[:80]!r} is not loaded here; {loaded}"
            raise ApiError(404, text, code="model_not_found", param="model")
        if self.pause.view.level is Level.TRIP:
            raise Failure("thermal_trip", f"stopped to save the memory modules: {self.pause.view.reason}")
        self.engine.check_ready()
        if view.info is None or view.model is None:
            raise Failure("model_loading", "the model is not ready yet")
        return view.model, view.info

    def require_tokens(self, tokens: tuple[int, ...], param: str) -> None:
        """Raise ApiError 400 unless every id is in the vocabulary (a library would abort on others)."""
        vocabulary = self.engine.view.vocabulary
        size = vocabulary.size if vocabulary else 0
        if not tokens:
            raise bad_request(f"{param} is empty", param=param, code="prompt_empty")
        if min(tokens) < 0 or max(tokens) >= size:
            text = f"{param} holds a token id outside of 0 to {size - 1}"
            raise bad_request(text, param=param, code="token_invalid")

    def fingerprint(self) -> str:
        """Return what tells two set-ups apart that may answer differently under one seed."""
        facts = msgspec.json.encode((self.engine.view.model, self.engine.view.info))
        return "fp_" + hashlib.blake2b(facts, digest_size=5).hexdigest()
