"""What the daemon costs one stream: its rate through the SDK over the socket, over that of the bare loop, in turn."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from common import bare, config, cores, median, rendered, report, streams

from optaned.testing.daemon import daemon


def ratios(*, threads: int, rounds: int, tokens: int) -> dict[str, list[float]]:
    """Measure daemon and bare loop alternately; the daemon's engine sleeps while the bare loop runs."""
    figures: dict[str, list[float]] = {"daemon": [], "bare": [], "ratio": []}
    with tempfile.TemporaryDirectory() as folder, daemon(Path(folder), config(threads=threads, slots=1)) as running:
        asyncio.run(streams(running.socket, parallel=1, tokens=32))  # the first request faults the weights in
        prompt = rendered(running)
        for _ in range(rounds):
            mine = asyncio.run(streams(running.socket, parallel=1, tokens=tokens))
            theirs = bare(prompt, threads=threads, tokens=tokens)
            figures["daemon"].append(round(mine, 1))
            figures["bare"].append(round(theirs, 1))
            figures["ratio"].append(round(mine / theirs, 3))
            print(f"threads {threads}: daemon {mine:.1f} tok/s, bare {theirs:.1f} tok/s, ratio {mine / theirs:.3f}")
    return figures


def main() -> None:
    """Print `ratio` (threads = cores - 1) and `ratio_all_cores` (threads = cores)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    args = parser.parse_args()
    fewer, every = max(1, cores() - 1), cores()
    most = ratios(threads=fewer, rounds=args.rounds, tokens=args.tokens)
    full = ratios(threads=every, rounds=args.rounds, tokens=args.tokens)
    report(
        "overhead",
        ratio=median(most["ratio"]),
        ratio_all_cores=median(full["ratio"]),
        threads=[fewer, every],
        tokens=args.tokens,
        measured={"cores_minus_1": most, "all_cores": full},
    )


if __name__ == "__main__":
    main()
