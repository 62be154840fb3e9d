"""Lets a scripted event happen to this process: a signal, an exit, a stall. Knows no model."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from optaned.api import DecodeAborted
from optaned_echo.directives import Event

_POLL_S = 0.002


def happen(event: Event, should_abort: Callable[[], bool] = lambda: False) -> None:
    """Do what the event says. Raises DecodeAborted when a stall is to be given up."""
    match event.do:
        case "crash":
            os.kill(os.getpid(), signal.Signals(int(event.value)))
        case "exit":
            os._exit(int(event.value))
        case "stall":
            _stall(event.value, should_abort)


def _stall(seconds: float, should_abort: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0:
        if should_abort():
            raise DecodeAborted
        time.sleep(min(left_s, _POLL_S))
