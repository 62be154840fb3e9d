"""What the daemon costs 4 and 8 streams at once: their rate through the SDK over that of a bare batched loop."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from common import bare, config, cores, median, rendered, report, streams

from optaned.testing.daemon import daemon


def ratios(*, parallel: int, threads: int, rounds: int, tokens: int) -> dict[str, list[float]]:
    """Measure daemon and bare batched loop alternately, with the same width, threads and cells."""
    figures: dict[str, list[float]] = {"daemon": [], "bare": [], "ratio": []}
    settings = config(threads=threads, slots=parallel, context=512)
    with tempfile.TemporaryDirectory() as folder, daemon(Path(folder), settings) as running:
        asyncio.run(streams(running.socket, parallel=parallel, tokens=16))
        prompt = rendered(running)
        for _ in range(rounds):
            mine = asyncio.run(streams(running.socket, parallel=parallel, tokens=tokens))
            theirs = bare(prompt, threads=threads, sequences=parallel, tokens=tokens, cells=512 * parallel)
            figures["daemon"].append(round(mine, 1))
            figures["bare"].append(round(theirs, 1))
            figures["ratio"].append(round(mine / theirs, 3))
            print(f"{parallel} streams: daemon {mine:.1f} tok/s, bare {theirs:.1f} tok/s, ratio {mine / theirs:.3f}")
    return figures


def main() -> None:
    """Print `ratio_4` and `ratio_8`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=max(1, cores() - 1))
    args = parser.parse_args()
    four = ratios(parallel=4, threads=args.threads, rounds=args.rounds, tokens=args.tokens)
    eight = ratios(parallel=8, threads=args.threads, rounds=args.rounds, tokens=args.tokens)
    report(
        "parallel",
        ratio=[median(four["ratio"]), median(eight["ratio"])],
        ratio_4=median(four["ratio"]),
        ratio_8=median(eight["ratio"]),
        threads=args.threads,
        tokens=args.tokens,
        measured={"4": four, "8": eight},
    )


if __name__ == "__main__":
    main()
