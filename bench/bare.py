"""The yardstick: a loop over the low-level bindings with nothing around it; as a program it prints tokens per second.

`python bench/bare.py MODEL --threads N --sequences K --tokens T` decodes K sequences in one batch a step, greedily, T
tokens each, from a prompt as long as the daemon's clients send. Time counts from the first to the last token.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from pathlib import Path

from llama_cpp import llama_cpp as lib


def load(
    model_path: Path, threads: int, cells: int, sequences: int, *, extra_buffers: bool = False
) -> tuple[object, object]:
    """Return (model, context) set up as the daemon's engine sets them up; with `extra_buffers`, weights are repacked."""
    lib.llama_backend_init()
    model_params = lib.llama_model_default_params()
    model_params.use_extra_bufts = extra_buffers
    model = lib.llama_model_load_from_file(str(model_path).encode(), model_params)
    context_params = lib.llama_context_default_params()
    context_params.n_ctx = cells
    context_params.n_batch = context_params.n_ubatch = 512
    context_params.n_seq_max = sequences
    context_params.kv_unified = True
    context_params.n_threads = context_params.n_threads_batch = threads
    return model, lib.llama_init_from_model(model, context_params)


def prompt_tokens(model: object, text: str) -> list[int]:
    """Return the prompt's token ids."""
    vocabulary = lib.llama_model_get_vocab(model)
    data = text.encode()
    out = (lib.llama_token * (len(data) + 8))()
    count = lib.llama_tokenize(vocabulary, data, len(data), out, len(out), True, True)
    return list(out[:count])


def fill(batch: object, rows: list[tuple[int, int, int, bool]]) -> None:
    """Put (token, position, sequence, wants logits) rows into a batch."""
    for i, (token, position, sequence, logits) in enumerate(rows):
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = logits
    batch.n_tokens = len(rows)


def measure(model_path: Path, *, threads: int, sequences: int, tokens: int, text: str, cells: int) -> float:
    """Return tokens per second over all sequences together."""
    model, context = load(model_path, threads, cells, sequences)
    prompt = prompt_tokens(model, text)
    sampler = lib.llama_sampler_init_greedy()
    batch = lib.llama_batch_init(512, 0, 1)
    last: list[int] = []
    for sequence in range(sequences):
        rows = [(token, i, sequence, i == len(prompt) - 1) for i, token in enumerate(prompt)]
        fill(batch, rows)
        assert lib.llama_decode(context, batch) == 0
        last.append(lib.llama_sampler_sample(sampler, context, -1))
    started = time.perf_counter()
    for step in range(tokens - 1):
        fill(batch, [(last[s], len(prompt) + step, s, True) for s in range(sequences)])
        assert lib.llama_decode(context, batch) == 0
        last = [lib.llama_sampler_sample(sampler, context, s) for s in range(sequences)]
    elapsed_s = time.perf_counter() - started
    lib.llama_batch_free(batch)
    lib.llama_sampler_free(sampler)
    lib.llama_free(context)
    lib.llama_model_free(model)
    return sequences * (tokens - 1) / elapsed_s


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _silent(_level: int, _text: bytes, _data: object) -> None:
    """Drop the library's chatter."""


def main() -> None:
    """Measure once and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompt", default="Tell me a long story about the sea.")
    parser.add_argument("--cells", type=int, default=8192)
    args = parser.parse_args()
    lib.llama_log_set(_silent, None)
    rate = measure(
        args.model,
        threads=args.threads,
        sequences=args.sequences,
        tokens=args.tokens,
        text=args.prompt,
        cells=args.cells,
    )
    print(json.dumps({"tokens_per_s": rate}))


if __name__ == "__main__":
    main()
