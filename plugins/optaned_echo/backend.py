"""Opens the echo: its vocabulary, and its model after a scripted load."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from optaned.api import Env, LoadRequest, UnavailableError
from optaned_echo.model import EchoModel
from optaned_echo.options import EchoOptions
from optaned_echo.vocabulary import EchoVocabulary

_LOAD_STEPS = 20


class EchoBackend:
    """Needs no files; those that are named are not read."""

    def __init__(self, _name: str, options: EchoOptions, env: Env) -> None:
        self._options = options
        self._env = env

    def vocabulary(self, files: Sequence[Path]) -> EchoVocabulary:  # noqa: ARG002  the echo has no files
        return EchoVocabulary(self._options.trained_context)

    def load(self, request: LoadRequest, progress: Callable[[float], bool]) -> EchoModel:
        """Load as slowly and as badly as the options say."""
        options = self._options
        for step in range(_LOAD_STEPS):
            if not progress(step / _LOAD_STEPS):
                raise UnavailableError("loading was given up")
            time.sleep(options.load_delay_s / _LOAD_STEPS)
            if step == _LOAD_STEPS // 2 and options.load_crash:
                os.kill(os.getpid(), signal.Signals(options.load_crash))
        if options.load_error:
            raise UnavailableError(options.load_error)
        progress(1.0)
        return EchoModel(request, options, clock=self._env.clock)

    def close(self) -> None:
        """Nothing to free."""
