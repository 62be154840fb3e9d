"""Backend `echo`: a model without weights that answers with the user's own words, for tests and for trying things out.

It is deterministic and can be told to be slow, to stall, to fail and to crash, by its options (`[engine.echo]`) and by
directives in a user message: see `directives`.
"""

from __future__ import annotations

from collections.abc import Sequence

from optaned.api import Driver, hookimpl
from optaned_echo.backend import EchoBackend
from optaned_echo.options import EchoOptions

OPTANED_API = (1, 0)


@hookimpl
def optaned_backends() -> Sequence[Driver]:
    """Declare the backend."""
    summary = "no weights: answers with the user's own words; scripted delays, stalls and crashes"
    return (Driver(name="echo", options=EchoOptions, open=EchoBackend, summary=summary),)
