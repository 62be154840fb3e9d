"""`optanectl status`: model, load, heat, slots and counters at one glance, or wait until the model is ready."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from optaned.cli.ctl.daemon import ApiError, Daemon
from optaned.cli.ctl.options import daemon_of, json_option, terminal
from optaned.cli.ctl.progress import describe, describe_heat, describe_load
from optaned.cli.ctl.terminal import Terminal, print_json
from optaned.errors import BusyError, UnavailableError

POLL_S = 0.2
GRACE_S = 10.0  # a daemon that was just started needs about a second to bind and to begin loading


@click.command("status")
@json_option
@click.option("--wait", is_flag=True, help="Wait until the model is ready (exit 0) or has failed (exit 1).")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="With --wait: give up (exit 75).")
@click.pass_context
def command(context: click.Context, *, as_json: bool, wait: bool, timeout_s: float | None) -> int:
    """Show model, load, heat, slots and counters.

    \b
    JSON: socket, pid, model, state (unloaded|loading|ready|restarting|failed|stopping), fraction (0 to 1), detail,
    waiting, active, thermal {level, duty, reason, paused}, slots {total, busy}, tokens {prompt, cached, completion,
    per_s} (since the daemon started; per_s null before the first answer), placement {policy, moving, skew} (null for a
    model without files), and what the daemon adds.
    """
    daemon = daemon_of(context)
    if wait:
        wait_until_ready(daemon, terminal(), timeout_s=timeout_s)
    view = look(daemon)
    if as_json:
        print_json(sys.stdout, view)
    else:
        for name, text in rows(view):
            click.echo(f"{name:8}{text}")
    return 0


def look(daemon: Daemon) -> dict[str, Any]:
    """Return what `--json` prints, asked of `/ready`, `/slots`, `/metrics` and `/tiers`."""
    reply = daemon.ask("GET", "/ready")
    if not isinstance(reply.body, dict) or "state" not in reply.body:
        raise UnavailableError(f"what answers at {daemon.address} is not this version's daemon")
    slots = daemon.ask("GET", "/slots").body
    states = [slot.get("state") for slot in slots] if isinstance(slots, list) else []
    busy = sum(state != "idle" for state in states)
    place = {"socket": str(daemon.address.path), "pid": reply.pid}
    counted = {"slots": {"total": len(states), "busy": busy}, "tokens": tokens_of(daemon.figures())}
    return {**place, **reply.body, **counted, "placement": placement_of(daemon.ask("GET", "/tiers").body)}


def placement_of(tiers: Any) -> dict[str, Any] | None:
    """Return policy, what it says of moves, and skew; None where nothing is placed."""
    if not isinstance(tiers, dict) or not tiers.get("tiers"):
        return None
    return {name: tiers.get(name) for name in ("policy", "moving", "skew")}


def tokens_of(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Return the counters of tokens; `per_s` is written tokens over the seconds spent writing."""
    read, reused, written = (
        int(figures.get(f"optaned_{name}_tokens_total", 0)) for name in ("prompt", "cached_prompt", "completion")
    )
    decode_s = figures.get("optaned_decode_seconds_total", 0.0)
    return {"prompt": read, "cached": reused, "completion": written, "per_s": written / decode_s if decode_s else None}


def rows(view: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what people read, as (name, text)."""
    lines = [("model", describe_load(view)), ("heat", describe_heat(view.get("thermal") or {}))]
    slots = view["slots"]
    waiting = view.get("waiting")
    queue = f", {waiting} waiting" if isinstance(waiting, int) else ""
    lines.append(("slots", f"{slots['busy']} of {slots['total']} busy{queue}"))
    lines.append(("tokens", _tokens(view["tokens"])))
    placed = view.get("placement")
    if placed and placed["moving"]:
        lines.append(("tiers", f"{placed['policy']}: {placed['moving']}"))
    return [*lines, ("daemon", f"pid {view['pid']} on {view['socket']}")]


def wait_until_ready(daemon: Daemon, screen: Terminal, *, timeout_s: float | None) -> None:
    """Return once the model answers. Raises ApiError when it failed, BusyError on time-out, UnavailableError."""
    started_s = time.monotonic()
    while True:
        waited_s = time.monotonic() - started_s
        text = _progress(daemon, within_grace=waited_s < GRACE_S)
        if text is None:
            return screen.progress("")
        if timeout_s is not None and waited_s > timeout_s:
            screen.progress("")
            raise BusyError(f"not ready after {timeout_s:g} s: {text}")
        screen.progress(f"{text} · {waited_s:.0f} s")
        time.sleep(POLL_S)


def _progress(daemon: Daemon, *, within_grace: bool) -> str | None:
    """Return what is being waited for; None when there is nothing left to wait for."""
    try:
        reply = daemon.ask("GET", "/ready")
    except UnavailableError:
        if not within_grace:
            raise
        return "waiting for the daemon"
    ready = reply.body if isinstance(reply.body, dict) else {}
    state = ready.get("state")
    if reply.status == 200 and state == "ready":
        return None
    if state == "failed" or (state == "unloaded" and not within_grace):
        raise ApiError(describe_load(ready))
    return describe(ready)


def _tokens(tokens: Mapping[str, Any]) -> str:
    rate = "" if tokens["per_s"] is None else f", {tokens['per_s']:.1f} tokens/s"
    return f"{tokens['prompt']} read ({tokens['cached']} reused), {tokens['completion']} written{rate}"
