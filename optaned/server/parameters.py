"""The parameters that chat and plain completions share: their types, their ranges, and which are refused.

A parameter that would change the meaning of an answer and is not supported is refused by name; one that is merely a
hint is ignored. Knows no prompt.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from optaned.domain.generation import Sampling
from optaned.server.faults import bad_request
from optaned.server.ports import Failure
from optaned.server.service import Service

_Probability = Annotated[float, Meta(ge=0, le=1)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_Count = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]

# What each must be to mean nothing. Any other value would promise something that is not done.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "allowed_token_ids": ([],),
    "audio": (),
    "bad_words": ([],),
    "chat_template": (),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "ignore_eos": (False,),
    "json_schema": (),
    "length_penalty": (1, 1.0),
    "logits_processors": ([],),
    "lora": ([],),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "prompt_embeds": (),
    "prompt_logprobs": (),
    "repetition_penalty": (1, 1.0),
    "stop_token_ids": ([],),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
    "top_n_sigma": (-1, 0),
    "use_beam_search": (False,),
    "web_search_options": (),
    "xtc_probability": (0,),
}
# Hints of speed, storage or accounting: without effect on the answer's text.
_HINTS = {
    "cache_prompt",
    "id_slot",
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "return_progress",
    "safety_identifier",
    "service_tier",
    "store",
    "timings_per_token",
    "user",
    "verbosity",
}


class StreamOptions(msgspec.Struct):
    """How a stream ends: with one more chunk that counts the tokens, or without."""

    include_usage: bool = False


class Generation(msgspec.Struct, kw_only=True):
    """What both kinds of completion accept. None means: the default of `Sampling`."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1)] = 1
    seed: int | None = None
    stop: str | list[str] = []
    max_tokens: _Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_k: _Count | None = None
    top_p: _Probability | None = None
    min_p: _Probability | None = None
    typical_p: _Probability | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    repeat_last_n: _Count | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    dry_multiplier: Annotated[float, Meta(ge=0, le=100)] | None = None
    dry_base: Annotated[float, Meta(ge=1, le=100)] | None = None
    dry_allowed_length: Annotated[int, Meta(ge=0, le=1 << 20)] | None = None
    dry_penalty_last_n: _Count | None = None
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Meta(ge=0, le=1000)] | None = None
    mirostat_eta: Annotated[float, Meta(ge=0, le=100)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] = {}
    grammar: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the stop strings. Raises ApiError 400 for more than four or an empty one."""
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if len(stops) > 4 or not all(stops):
            raise bad_request("stop takes up to four strings, none of them empty", param="stop")
        return stops

    @property
    def counts_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


_SAMPLING = tuple(
    name for name in Sampling.__dataclass_fields__ if name not in ("logit_bias", "grammar", "seed", "top_k")
)


def refuse_unsupported(body: dict[str, Any], kind: type[msgspec.Struct], service: Service) -> None:
    """Raise ApiError 400 for a parameter that changes the meaning and is not supported; note harmless unknown ones."""
    unknown = {name for name, value in body.items() if value is not None} - set(kind.__struct_fields__)
    for name in sorted(unknown & set(_NEUTRAL)):
        if not any(body[name] == neutral for neutral in _NEUTRAL[name]):
            raise bad_request(f"{name} is not supported by this server", param=name, code="unsupported_parameter")
    service.ignored.note(unknown - set(_NEUTRAL) - _HINTS)


def sampling_of(asked: Generation, service: Service, *, grammar: str | None) -> Sampling:
    """Return how to sample, with a random seed where none was asked for. Raises ApiError 400."""
    values = {name: getattr(asked, name) for name in _SAMPLING if getattr(asked, name) is not None}
    if asked.top_k is not None:
        values["top_k"] = max(asked.top_k, 0)
    # -1 is how users of local servers ask for a random seed.
    seed = asked.seed if asked.seed is not None and asked.seed != -1 else secrets.randbits(32)
    bias = _bias(asked.logit_bias, service)
    return Sampling(**values, logit_bias=bias, grammar=grammar, seed=seed & 0xFFFFFFFF)


def derive_seed(seed: int, choice: int) -> int:
    """Return the seed of one of n choices: the first is the seed itself, so that n=1 and n=2 agree on it."""
    if choice == 0:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed}/{choice}".encode(), digest_size=4).digest())


def fit_tokens(asked: int | None, prompt: int, context: int, *, param: str) -> int:
    """Return how many tokens the answer may have: what was asked for (None or -1: all that fits).

    Raises ApiError 400 when that is less than one, Failure `context_length_exceeded` when it does not fit.
    """
    if asked is None or asked == -1:
        if prompt < context:
            return context - prompt
        raise Failure("context_length_exceeded", f"the prompt has {prompt} tokens, but the context holds {context}")
    if asked < 1:
        raise bad_request(f"{param} must be at least 1", param=param)
    if prompt + asked > context:
        text = f"{prompt} tokens of prompt and {asked} of answer make {prompt + asked}, but the context holds {context}"
        raise Failure("context_length_exceeded", text)
    return asked


def _bias(asked: dict[str, float], service: Service) -> tuple[tuple[int, float], ...]:
    vocabulary = service.engine.view.vocabulary
    size = vocabulary.size if vocabulary else 0
    found = []
    for name, bias in asked.items():
        if not (name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < size):
            raise bad_request(f"logit_bias names tokens by ids from 0 to {size - 1}", param="logit_bias")
        found.append((int(name), bias))
    return tuple(found)
