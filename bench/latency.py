"""How fast control routes answer while the engine is in a long prefill, loading, or stopped."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import config, cores, report

from optaned.testing.daemon import Daemon, daemon, eventually

ROUTES = [("GET", "/health", None), ("GET", "/ready", None), ("GET", "/metrics", None), ("GET", "/slots", None)]
ROUTES.append(("POST", "/tokenize", {"content": "the quick brown fox"}))


def sample(running: Daemon, *, seconds: float) -> list[float]:
    """Ask every route in turn for a while; return the answers' times in milliseconds."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for method, path, body in ROUTES:
            started = time.perf_counter()
            status, _ = running.request(method, path, body)
            times.append(1000 * (time.perf_counter() - started))
            assert status in (200, 503), (path, status)
    return times


@contextmanager
def prefilling(running: Daemon, *, words: int) -> Iterator[None]:
    """Keep the engine in prefills of about 2,000 tokens, one after the other."""
    ended = threading.Event()

    def ask() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            text = f"{number} " + "sea " * words
            running.request("POST", "/v1/completions", {"prompt": text, "max_tokens": 1}, timeout_s=120)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        eventually(lambda: any(slot["state"] == "prefill" for slot in running.get("/slots")), what="a prefill runs")
        yield
    finally:
        ended.set()
        asking.join()


def measure(running: Daemon, heat: Path, *, seconds: float) -> dict[str, list[float]]:
    """Return the answers' times in each of the three states, in milliseconds."""
    states = {}
    with prefilling(running, words=2000):
        states["prefill"] = sample(running, seconds=seconds)
    heat.write_text("77\n")
    eventually(lambda: running.get("/ready")["thermal"]["paused"], what="the engine stands still")
    states["stopped"] = sample(running, seconds=seconds / 4)
    os.kill(running.get("/ready")["engine_pid"], signal.SIGKILL)
    eventually(lambda: running.get("/ready")["state"] != "ready", what="the engine loads anew")
    # It is started into the heat and stands still while it loads.
    states["loading"] = sample(running, seconds=seconds / 4)
    heat.write_text("40\n")
    return states


def main() -> None:
    """Print `p50_ms` and `p99_ms`, the worst of the three states, and each state's own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        heat = Path(folder, "celsius")
        heat.write_text("40\n")
        settings = config(threads=cores(), slots=1, context=4096, heat_file=heat)
        with daemon(Path(folder), settings) as running:
            states = measure(running, heat, seconds=args.seconds)
    figures = {
        state: {
            "p50_ms": round(statistics.median(t), 2),
            "p99_ms": round(statistics.quantiles(t, n=100)[98], 2),
            "n": len(t),
        }
        for state, t in states.items()
    }
    worst = {key: max(figure[key] for figure in figures.values()) for key in ("p50_ms", "p99_ms")}
    report("latency", **worst, states=figures)


if __name__ == "__main__":
    main()
