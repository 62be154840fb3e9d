"""Turns whatever goes wrong in a stage into lines that name the stage, what it worked on, the cause and a next step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from optaned.errors import OptanedError, PluginError


@contextmanager
def stage(name: str, subject: str) -> Iterator[None]:
    """Prefix the lines of any OptanedError with `name: subject`; anything else a plugin raises is a PluginError."""
    try:
        yield
    except OptanedError as error:
        raise type(error)(*(f"{name}: {subject}: {line}" for line in error.lines)) from error
    except Exception as error:  # a plugin's code runs here; the traceback stays in the cause
        words = " ".join(str(error).split())  # a line of ours stays one line, whatever its author wrote
        cause = f"{type(error).__name__}: {words}" if words else type(error).__name__
        raise PluginError(f"{name}: {subject}: it failed: {cause}; choose another driver or tell its author") from error
