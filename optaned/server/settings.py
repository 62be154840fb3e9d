"""How the HTTP side behaves: limits, deadlines, who may control it. Knows no file that says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits of one server. A deadline of 10 s for a header is long for any client on this machine.

    `ping_s` stays below the 20 to 30 s after which proxies and editors drop a quiet stream. `keep_alive_s` is longer
    than any client keeps an idle connection, so that the client closes first and never writes into a closed one.
    `stop_s` is what open connections get at the end, after every stream has had its last event.
    """

    admin_group: str = "optaned-admin"
    max_body_bytes: int = 16 << 20
    max_connections: int = 512
    max_choices: int = 16
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    keep_alive_s: int = 75
    ping_s: float = 15.0
    stop_s: int = 3
