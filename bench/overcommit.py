"""A model larger than memory: the block home's store against plain mmap, both in one memory control group, in turn.

A 3.2 GB model (64 experts a layer, 4 used) in 1.4 GB, with a skewed and with a uniform router. Each run is a process of its
own that joins the group, drops the model from the page cache, answers a warm-up prompt and then another one, whose
tokens are timed. The limit that a disk sets: its direct-read rate over what a clairvoyant cache of the same size misses.
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import cores, median, report
from small_models import moe

import optaned_llamacpp
from optaned.api import Env, LoadRequest, Model, Row, Sampling
from optaned.index import read_index
from optaned.residency.block import BlockStore, refusal
from optaned.residency.preload import environment
from optaned.testing.baselines import belady_share, lru_share
from optaned.testing.traces import trace_of

EXPERTS, USED = 64, 4
WARM_UP = "Explain in a few sentences how bread is made, from the grain in the field to the loaf on the table."
MEASURED = "Tell me a long story about the sea."
# What the process needs beside the weights: interpreter, library, cache, buffers. Measured: 0.25 GB.
OTHER_BYTES = 320 << 20
READ_BYTES, READERS = 512 << 10, 4


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path | str]:
    """Yield the folder of a control group with this limit, or why none can be made."""
    root = Path("/sys/fs/cgroup")
    for parent, limit in ((root / "memory", "memory.limit_in_bytes"), (root, "memory.max")):
        group = parent / f"optaned-bench-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(limit_bytes))
            yield group
        except OSError as error:
            yield f"no memory limit can be set: {error}"
        finally:
            group.rmdir()
        return
    yield "no memory control group can be made here; run as root, or under systemd-run --scope -p Delegate=yes"


def direct_gbps(path: Path, size_bytes: int = 1 << 30) -> float:
    """Return the disk's rate for reads past the page cache, in the size and number in which the store reads."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffers = [mmap.mmap(-1, READ_BYTES) for _ in range(READERS)]

    def read(reader: int) -> None:
        for offset in range(reader * READ_BYTES, size_bytes, READERS * READ_BYTES):
            os.preadv(fd, [buffers[reader]], offset)

    began = time.perf_counter()
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(read, range(READERS)))
    elapsed_s = time.perf_counter() - began
    os.close(fd)
    return size_bytes / elapsed_s / 1e9


def answer(model: Model, text: str, tokens: int) -> float:
    """Answer greedily from an empty slot and return tokens per second, the prompt left out."""
    prompt = model.vocabulary.tokenize(text, special=False, bos=True)
    model.cut(0, 0)
    last = len(prompt) - 1
    model.decode([Row(t, at, 0, at == last) for at, t in enumerate(prompt)], should_abort=lambda: False)
    sampler = model.sampler(Sampling(temperature=0.0), prompt)
    began = time.perf_counter()
    for at in range(tokens):
        token = sampler.sample(0, position=at, top_logprobs=None).token
        model.decode((Row(token, len(prompt) + at, 0, logits=True),))
    return tokens / (time.perf_counter() - began)


def child(args: argparse.Namespace) -> None:
    """Be one run: print a JSON object."""
    Path(args.group, "cgroup.procs").write_text(str(os.getpid()))
    file = Path(args.child)
    handle = os.open(file, os.O_RDONLY)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)  # pages count for the group that read them
    index = read_index([file])
    driver = optaned_llamacpp.optaned_backends()[0]
    backend = driver.open("llamacpp", driver.options(), Env())
    request = LoadRequest((file,), context=1024, slots=1, threads=args.threads, index=index if args.budget else None)
    model: Any = backend.load(request, lambda _fraction: True)
    if not args.budget:
        answer(model, WARM_UP, args.warm_up)
        print(json.dumps({"tokens_per_s": answer(model, MEASURED, args.tokens)}))
        return
    store = BlockStore.open(index, [file], [True], budget_bytes=args.budget)
    store.promote_trunk()
    store.attach(model)
    model.trace(on=True)
    answer(model, WARM_UP, args.warm_up)
    before = store.stats()
    rate = answer(model, MEASURED, args.tokens)
    after = store.stats()
    # A prompt's choices come layer by layer, a decoded token's one after the other: only those make a trace of tokens.
    choices = [(choice.layer, choice.experts) for choice in model.take_choices()]
    misses = after.missed_experts - before.missed_experts
    print(
        json.dumps(
            {
                "tokens_per_s": rate,
                "hit_share": 1 - misses / (misses + after.hit_experts - before.hit_experts),
                "read_mb_per_token": (after.bytes_read - before.bytes_read) / args.tokens / 1e6,
                "waited_ms_per_token": (after.waited_ns - before.waited_ns) / args.tokens / 1e6,
                "cached_bytes": after.cached_bytes,
                "choices": decoded(choices, len(index.expert_layers), args.warm_up + args.tokens),
            }
        )
    )


def decoded(choices: list[tuple[int, tuple[int, ...]]], layers: int, tokens: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return only the choices of decoded tokens: runs of one choice a layer, layers ascending."""
    kept: list[tuple[int, tuple[int, ...]]] = []
    for at in range(len(choices) - layers + 1):
        window = choices[at : at + layers]
        if window[0][0] == choices[0][0] and all(a[0] < b[0] for a, b in itertools.pairwise(window)):
            kept += window
    assert len(kept) == layers * tokens, "a trace that is not whole"
    return kept


def run(group: Path, file: Path, *, budget: int, warm_up: int, tokens: int, threads: int) -> dict[str, Any]:
    """Run one child and return what it printed. `budget` 0 is plain mmap."""
    command = [sys.executable, __file__, "--child", str(file), "--group", str(group), "--budget", str(budget)]
    command += ["--warm-up", str(warm_up), "--tokens", str(tokens), "--threads", str(threads)]
    variables = {**os.environ, **(environment([file]) if budget else {})}
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(group: Path, file: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Measure both ways in turn and return medians, with the fraction of the disk's limit."""
    budget = int(args.limit_mb * 1e6) - OTHER_BYTES
    rates: dict[str, list[float]] = {"store": [], "plain": []}
    fractions, hits = [], []
    index = read_index([file])
    for _ in range(args.rounds):
        plain = run(group, file, budget=0, warm_up=args.plain_tokens, tokens=args.plain_tokens, threads=args.threads)
        gbps = direct_gbps(file)
        mine = run(group, file, budget=budget, warm_up=args.tokens, tokens=args.tokens, threads=args.threads)
        choices = [(layer, tuple(experts)) for layer, experts in mine.pop("choices")]
        trace = trace_of(choices, experts=EXPERTS, expert_bytes=index.expert_sizes[0])
        capacity = mine["cached_bytes"] // index.expert_sizes[0]
        best = belady_share(trace, capacity, after=args.tokens)
        missed_gb = (1 - best) * USED * sum(index.expert_sizes) / 1e9
        rates["store"].append(mine["tokens_per_s"])
        rates["plain"].append(plain["tokens_per_s"])
        fractions.append(mine["tokens_per_s"] * missed_gb / gbps)
        hits.append(mine["hit_share"])
        lru = lru_share(trace, capacity, after=args.tokens)
        print(f"{file.name}: plain {plain['tokens_per_s']:.2f} tok/s, store {mine['tokens_per_s']:.2f}", end="; ")
        print(f"hits {mine['hit_share']:.3f} (lru {lru:.3f}, clairvoyant {best:.3f}), disk {gbps:.2f} GB/s", end="; ")
        print(f"{mine['read_mb_per_token']:.1f} MB and {mine['waited_ms_per_token']:.1f} ms of waiting a token")
    ratios = [a / b for a, b in zip(rates["store"], rates["plain"], strict=True)]
    return {
        "ratio": median(ratios),
        "fraction": median(fractions),
        "tokens_per_s": median(rates["store"]),
        "plain_tokens_per_s": median(rates["plain"]),
        "hit_share": median(hits),
    }


def main() -> None:
    """Print `ratio_skewed`, `ratio_uniform` and `disk_limit_fraction` (of both)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--plain-tokens", type=int, default=6)
    parser.add_argument("--limit-mb", type=float, default=1400)
    parser.add_argument("--skew", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--warm-up", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    with memory_group(int(args.limit_mb * 1e6)) as group:
        why = refusal() if isinstance(group, Path) else group
        if why is not None or not isinstance(group, Path):
            report("overcommit", skipped=why)
            return
        skewed = compare(group, moe(experts=EXPERTS, used=USED, skew=args.skew), args)
        uniform = compare(group, moe(experts=EXPERTS, used=USED, skew=0.0), args)
    report(
        "overcommit",
        ratio_skewed=skewed["ratio"],
        ratio_uniform=uniform["ratio"],
        disk_limit_fraction={"skewed": skewed["fraction"], "uniform": uniform["fraction"]},
        limit_mb=args.limit_mb,
        measured={"skewed": skewed, "uniform": uniform},
    )


if __name__ == "__main__":
    main()
