"""The backend `llamacpp`: declares the driver and opens it. Importing this needs no model library.

The implementation is imported by name in `open`, because `optaned check` and `optaned plugins` read this declaration on
machines where llama-cpp-python is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from optaned.api import Backend, Driver, Env, Needs, Options, UnavailableError, hookimpl

OPTANED_API = (1, 0)


class LlamaOptions(Options):
    """The table `[engine.llamacpp]`."""

    flash_attention: Literal["auto", "on", "off"] = "auto"
    """Fused attention kernels; a quantized V cache needs them."""
    ubatch: Annotated[int, Field(ge=1, le=65536)] = 512
    """Tokens that one graph evaluation holds at most; compute buffers grow with it."""
    numa: Literal["off", "distribute", "isolate", "numactl"] = "off"
    """How the library spreads its threads over NUMA nodes."""


def _open(name: str, options: LlamaOptions, env: Env) -> Backend:
    try:
        implementation = importlib.import_module("optaned_llamacpp.backend")
    except ModuleNotFoundError as error:
        missing = f"{name}: python module {error.name!r} is not installed"
        raise UnavailableError(f"{missing}; pip install 'optaned[llama]'") from error
    except (OSError, RuntimeError) as error:
        broken = f"{name}: llama.cpp's shared library cannot be opened ({error})"
        raise UnavailableError(f"{broken}; pip install --force-reinstall 'optaned[llama]'") from error
    backend: Backend = implementation.LlamaBackend(options, env.log)
    return backend


@hookimpl
def optaned_backends() -> Sequence[Driver]:
    summary = "llama.cpp in process, through llama-cpp-python"
    return [Driver("llamacpp", LlamaOptions, _open, summary=summary, needs=Needs(model_files=True))]
