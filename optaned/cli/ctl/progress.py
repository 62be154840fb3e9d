"""Says in a few words what the daemon does while no token comes. Pure: knows no socket and no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def describe(ready: Mapping[str, Any], slots: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return why nothing comes: the pause, the load, the prefill or the queue, from `/ready` and `/slots`."""
    thermal = ready.get("thermal") or {}
    if thermal.get("paused"):
        return f"paused: {thermal.get('reason') or 'no reason given'}"
    if ready.get("state") != "ready":
        return describe_load(ready)
    busy = [slot for slot in slots if slot.get("state") != "idle"]
    reading = [slot for slot in busy if slot.get("state") == "prefill"]
    if reading:
        done, total = reading[0].get("prefilled_tokens") or 0, reading[0].get("prompt_tokens") or 0
        which = "the" if len(busy) == 1 else "a"  # a slot does not say whose prompt it reads
        return f"reading {which} prompt: {done} of {total} tokens"
    if slots and len(busy) == len(slots) and ready.get("waiting"):
        return f"queued: all {len(slots)} slots are busy, {ready['waiting']} wait"
    return "waiting for the next token"


def describe_load(ready: Mapping[str, Any]) -> str:
    """Return the model's state in words: "loading smollm2, 43 %"."""
    state = ready.get("state") or "unknown"
    model = f" {ready['model']}" if ready.get("model") else ""
    fraction = ready.get("fraction")
    percent = f", {fraction:.0%}" if state == "loading" and isinstance(fraction, int | float) else ""
    detail = f" ({ready['detail']})" if ready.get("detail") else ""
    return f"{state}{model}{percent}{detail}"


def describe_heat(thermal: Mapping[str, Any]) -> str:
    """Return the guard's word: "COOL, duty 100 %"."""
    level = thermal.get("level")
    duty = thermal.get("duty")
    text = str(level).upper() if level is not None else "unknown"
    if isinstance(duty, int | float):
        text += f", duty {duty:.0%}"
    if thermal.get("paused"):
        text += ", paused"
    return f"{text} ({thermal['reason']})" if thermal.get("reason") else text
