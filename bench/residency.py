"""What moving a loaded model's pages costs and brings: how fast they move, what decoding reads fastest, what a tap costs.

Each part is measured in a process of its own, states in turn, medians told. `promote_gbps`: by number of threads, from the
page cache. `decode_from`: speed of decoding and of prefill over that from home, from a copy in 4 KiB pages, a copy in huge
pages, and (in Q4_0) from the library's own repacked copy. `decode_slowdown` and `move_gbps_at_10_percent`: decoding while
pages move all the time under the mover's own back-off. `tap_overhead`: a watched router over one that nobody watches.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import json
import mmap
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import bare
from common import cores, median, report
from llama_cpp import llama_cpp as lib
from small_models import moe, repackable

import optaned_llamacpp
from optaned.api import Env, LoadRequest, Model, ModelIndex, Moved, Row
from optaned.domain.model import ByteRange, Group
from optaned.index import read_index
from optaned.residency.kernel import LinuxKernel
from optaned.residency.maps import Mapping
from optaned.residency.opening import open_pages
from optaned.residency.pace import Pace
from optaned_llamacpp import tap

STEPS = 48
PREFILL = 256
HUGE_BYTES = 2 << 20
MADV_HUGEPAGE = 14


# ---- what the parts share --------------------------------------------------------------------------------------------


def load(path: Path, index: ModelIndex | None, threads: int) -> Model:
    """Return the model as the engine loads it; its router is watched if there is an index."""
    backend = optaned_llamacpp.optaned_backends()[0].open("llamacpp", optaned_llamacpp.LlamaOptions(), Env())
    request = LoadRequest((path,), context=1024, slots=1, threads=threads, batch=512, index=index)
    return backend.load(request, lambda _fraction: True)


def tokens_of(count: int) -> list[int]:
    """Return tokens that send the router to ever other experts, the same in every run."""
    draw = random.Random(7)
    return [draw.randrange(1000, 40000) for _ in range(count)]


def decode(model: Model, *, steps: int = STEPS, pace: Pace | None = None) -> float:
    """Return the median seconds of a decode step of one row."""
    model.cut(0, 0)
    times = []
    for position, token in enumerate(tokens_of(steps)):
        began = time.perf_counter()
        if pace is not None:
            pace.begin_step(1)
        model.decode([Row(token, position, 0, logits=True)])
        if pace is not None:
            pace.end_step()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def prefill(model: Model) -> float:
    """Return the seconds that one prompt takes."""
    model.cut(0, 0)
    began = time.perf_counter()
    model.decode([Row(token, at, 0, at == PREFILL - 1) for at, token in enumerate(tokens_of(PREFILL))])
    return time.perf_counter() - began


def parts_of(index: ModelIndex) -> list[tuple[ByteRange, ...]]:
    """Return what moves as one: each expert, and each tensor of the trunk."""
    trunk = [(tensor.place,) for tensor in index.tensors if tensor.group is Group.TRUNK]
    return trunk + [index.expert_ranges(layer, e) for layer in index.expert_layers for e in range(index.expert_count)]


# ---- the parts -------------------------------------------------------------------------------------------------------


def promote(rounds: int, threads: int) -> dict[str, Any]:
    """Promote and demote every expert and tensor, one after another, with 1, 2 and 4 threads."""
    path = moe()
    index = read_index([path])
    ranges = [part for parts in parts_of(index) for part in parts]
    figures: dict[str, Any] = {}
    for workers in (1, 2, 4):
        model = load(path, None, threads)
        pages = open_pages([path], in_place=[True], workers=workers)
        rates: dict[str, list[float]] = {"promote": [], "demote": []}
        for _ in range(rounds):
            rates["promote"].append(gbps(functools.partial(pages.promote, ranges, numa_node=None)))
            rates["demote"].append(gbps(functools.partial(pages.demote, ranges)))
        pages.close()
        model.close()
        figures[str(workers)] = {name: median(values) for name, values in rates.items()}
    return figures


def gbps(move: Callable[[], Moved]) -> float:
    """Return how fast a move was."""
    began = time.perf_counter()
    moved = move()
    assert moved.fault is None, moved.fault
    return moved.size_bytes / (time.perf_counter() - began) / 1e9


def sources(rounds: int, threads: int) -> dict[str, Any]:
    """Decode from home and from a copy in turn, and then from huge pages, each over home in its own process image."""
    path = moe()
    index = read_index([path])
    everything = [tensor.place for tensor in index.tensors]
    model = load(path, None, threads)
    pages = open_pages([path], in_place=[True])
    times: dict[str, dict[str, list[float]]] = {"decode": {}, "prefill": {}}

    def measure(kind: str) -> None:
        for what, one in (("decode", decode), ("prefill", prefill)):
            times[what].setdefault(kind, []).append(one(model))

    decode(model)
    for _ in range(rounds):
        measure("home")
        pages.promote(everything, numa_node=None)
        measure("copy")
        pages.demote(everything)
    huge_share = huge_copy(path, pages.mappings)
    for _ in range(rounds):
        measure("huge")
    pages.close()
    model.close()
    ratios = {
        what: {kind: round(statistics.median(of["home"]) / statistics.median(of[kind]), 3) for kind in ("copy", "huge")}
        for what, of in times.items()
    }
    tokens_per_s = round(1 / statistics.median(times["decode"]["home"]), 1)
    return ratios | {"huge_share": round(huge_share, 2), "home_tokens_per_s": tokens_per_s}


def huge_copy(path: Path, mappings: Sequence[Mapping]) -> float:
    """Put a copy in huge pages under the model, whole 2 MiB at a time; return the share that the kernel made huge."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64)
    kernel, copied = LinuxKernel(), 0
    with path.open("rb") as file:
        for mapping in mappings:
            start = -(-mapping.address // HUGE_BYTES) * HUGE_BYTES
            size = (mapping.address + mapping.size_bytes - start) // HUGE_BYTES * HUGE_BYTES
            if size <= 0:
                continue
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED
            assert libc.mmap(start, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == start
            kernel.advise(start, size, MADV_HUGEPAGE)
            offset = mapping.offset + start - mapping.address
            for at in range(0, size, 64 << 20):
                length = min(64 << 20, size - at)
                view = (ctypes.c_char * length).from_address(start + at)
                assert os.preadv(file.fileno(), [view], offset + at) == length
            copied += size
    anonymous = next(
        int(line.split()[1]) << 10
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()
        if line.startswith("AnonHugePages")
    )
    return anonymous / copied


def repacked(rounds: int, threads: int) -> dict[str, Any]:
    """Decode from a copy in the library's own order over decoding from the mapped file, both of the Q4_0 model."""
    path = repackable()
    times: dict[str, dict[bool, list[float]]] = {"decode": {False: [], True: []}, "prefill": {False: [], True: []}}
    lib.llama_log_set(bare._silent, None)
    opened = {extra: bare.load(path, threads, 1024, 1, extra_buffers=extra) for extra in (False, True)}
    batch = lib.llama_batch_init(512, 0, 1)

    def run(context: object, rows: list[tuple[int, int, int, bool]]) -> float:
        bare.fill(batch, rows)
        began = time.perf_counter()
        assert lib.llama_decode(context, batch) == 0
        lib.llama_synchronize(context)
        return time.perf_counter() - began

    for _, extra in itertools.product(range(rounds), (False, True)):
        context = opened[extra][1]
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        rows = [(token, at, 0, at == PREFILL - 1) for at, token in enumerate(tokens_of(PREFILL))]
        times["prefill"][extra].append(run(context, rows))
        steps = [run(context, [(token, PREFILL + at, 0, True)]) for at, token in enumerate(tokens_of(STEPS))]
        times["decode"][extra].append(statistics.median(steps))
    return {what: round(statistics.median(of[False]) / statistics.median(of[True]), 3) for what, of in times.items()}


def churn(rounds: int, threads: int) -> dict[str, Any]:
    """Decode with and without a mover that promotes and demotes everything all the time, as fast as it lets itself."""
    path = moe()
    index = read_index([path])
    parts, pace = parts_of(index), Pace()
    model = load(path, None, threads)
    pages = open_pages([path], in_place=[True], pace=pace)
    quiet, moving, rates = [], [], []
    decode(model, steps=2 * STEPS)
    for _ in range(rounds):
        quiet.append(decode(model, pace=pace))
        with Mover(lambda part: (pages.promote(part, numa_node=None), pages.demote(part)), parts):
            decode(model, pace=pace)  # it learns what its moves cost
            before, began = pace.moved_bytes, time.perf_counter()
            moving.append(decode(model, steps=4 * STEPS, pace=pace))
            rates.append((pace.moved_bytes - before) / (time.perf_counter() - began) / 1e9)
        model.cut(0, 0)
    pages.close()
    model.close()
    return {
        "slowdown": round(1 - statistics.median(quiet) / statistics.median(moving), 3),
        "gbps": median(rates),
        "learned_slowdown": round(pace.slowdown, 3),
    }


class Mover:
    """A thread that moves parts to and fro within a `with` block."""

    def __init__(self, move: Callable[[tuple[ByteRange, ...]], object], parts: Sequence[tuple[ByteRange, ...]]) -> None:
        self._move, self._parts = move, parts
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for part in itertools.cycle(self._parts):
            if self._ends.is_set():
                return
            self._move(part)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc_info: object) -> None:
        self._ends.set()
        self._thread.join()


def taps(rounds: int, threads: int) -> dict[str, Any]:
    """Decode each token with a watched and an unwatched router in turn, so that both meet the same machine."""
    path = moe()
    index = read_index([path])
    with mock.patch.object(tap, "open_native", return_value="measured here"):
        models = {"python": load(path, index, threads)}
    models |= {"none": load(path, None, threads), "native": load(path, index, threads)}
    for model in models.values():
        decode(model)
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for model in models.values():
            model.cut(0, 0)
        for position, token in enumerate(tokens_of(2 * STEPS)):
            # The order changes with every token: whoever comes first finds other caches.
            for name in random.sample(sorted(models), len(models)):
                began = time.perf_counter()
                models[name].decode([Row(token, position, 0, logits=True)])
                times[name].append(time.perf_counter() - began)
    for model in models.values():
        model.close()
    none = statistics.median(times["none"])
    overheads = {name: round(statistics.median(times[name]) / none - 1, 4) for name in ("native", "python")}
    return overheads | {"tokens_per_s": round(1 / none, 1)}


PARTS = {"promote": promote, "sources": sources, "repacked": repacked, "churn": churn, "tap": taps}


def main() -> None:
    """Run every part in a process of its own and print one object; with `--part`, one part here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=cores())
    args = parser.parse_args()
    if args.part:
        print(json.dumps(PARTS[args.part](args.rounds, args.threads)))
        return
    found: dict[str, Any] = {}
    for part in PARTS:
        command = [
            sys.executable,
            __file__,
            "--part",
            part,
            "--rounds",
            str(args.rounds),
            "--threads",
            str(args.threads),
        ]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found[part] = json.loads(said.splitlines()[-1])
        print(f"{part}: {json.dumps(found[part])}", flush=True)
    report(
        "residency",
        promote_gbps={workers: rates["promote"] for workers, rates in found["promote"].items()},
        demote_gbps={workers: rates["demote"] for workers, rates in found["promote"].items()},
        decode_from=found["sources"] | {"repacked": found["repacked"]},
        decode_slowdown=found["churn"]["slowdown"],
        move_gbps_at_10_percent=found["churn"]["gbps"],
        tap_overhead=found["tap"]["native"],
        tap_overhead_python=found["tap"]["python"],
        threads=args.threads,
    )


if __name__ == "__main__":
    main()
