"""POST /v1/completions: text or tokens in, their continuation out. Knows no chat."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from optaned.engine.messages import Generate
from optaned.server.body import convert, parse_object, read_body
from optaned.server.faults import api_error, bad_request
from optaned.server.grammars import ResponseFormat, grammar_of
from optaned.server.parameters import Generation, derive_seed, fit_tokens, refuse_unsupported, sampling_of
from optaned.server.ports import Failure
from optaned.server.replying import Reply, Streamed, whole
from optaned.server.service import Service
from optaned.server.text_chunks import TextAnswer, TextChunks


class CompletionBody(Generation, kw_only=True):
    """The body of a plain completion."""

    prompt: str | list[str | int | list[int]]
    best_of: int | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None


async def completions(request: Request, service: Service) -> Response:
    """Answer one request. Raises ApiError and Failure."""
    body = parse_object(await read_body(request, service.settings))
    refuse_unsupported(body, CompletionBody, service)
    asked = convert(body, CompletionBody)
    model, info = service.require_model(asked.model)
    prompts = await token_prompts(asked.prompt, service, param="prompt", special=True)
    _check(asked, len(prompts), service)
    grammar = await grammar_of(asked.response_format, asked.grammar, service)
    name = f"cmpl-{uuid.uuid4().hex}"
    base = {"id": name, "created": int(time.time()), "model": model, "system_fingerprint": service.fingerprint()}
    requests = _requests(asked, prompts, service, name=name, context=info.context, grammar=grammar)
    reply = Reply(requests, asked.n, base, "text_completion", asked.counts_usage)
    logprobs = asked.logprobs is not None
    numbers = range(len(requests))
    if not asked.stream:
        return await whole(service, reply, [TextAnswer(n, logprobs=logprobs) for n in numbers], request.receive)
    chunks = [TextChunks(n, base=base, usage=asked.counts_usage, logprobs=logprobs) for n in numbers]
    return Streamed(service, reply, chunks)


def _check(asked: CompletionBody, prompts: int, service: Service) -> None:
    most = service.settings.max_choices
    if asked.n > most:
        raise bad_request(f"n is at most {most}", param="n")
    if prompts * asked.n > most:
        raise bad_request(f"{prompts} prompts with n={asked.n} are more than {most} answers", param="prompt")
    if asked.best_of is not None and asked.best_of != asked.n:
        raise bad_request("best_of is not supported beyond n", param="best_of", code="unsupported_parameter")


def _requests(
    asked: CompletionBody,
    prompts: Sequence[tuple[int, ...]],
    service: Service,
    *,
    name: str,
    context: int,
    grammar: str | None,
) -> tuple[Generate, ...]:
    sampling = sampling_of(asked, service, grammar=grammar)
    requests: list[Generate] = []
    for prompt in prompts:
        try:
            max_tokens = fit_tokens(asked.max_tokens, len(prompt), context, param="max_tokens")
        except Failure as failure:
            raise api_error(failure, param="prompt") from None
        for number in range(asked.n):
            requests.append(
                Generate(
                    id=f"{name}-{len(requests)}",
                    prompt=prompt,
                    sampling=replace(sampling, seed=derive_seed(sampling.seed, number)),
                    max_tokens=max_tokens,
                    stop=asked.stops,
                    logprobs=asked.logprobs,
                )
            )
    return tuple(requests)


async def token_prompts(
    prompt: str | Sequence[str | int | list[int]], service: Service, *, param: str, special: bool
) -> list[tuple[int, ...]]:
    """Return OpenAI's four kinds of prompt (text, texts, tokens, lists of tokens) as lists of tokens.

    Raises ApiError 400 for an empty prompt, mixed kinds, and ids outside of the vocabulary.
    """
    if isinstance(prompt, str):
        prompts: list[str | Sequence[int]] = [prompt]
    else:
        numbers = [item for item in prompt if isinstance(item, int)]
        if numbers and len(numbers) != len(prompt):
            raise bad_request(f"{param} mixes token ids with other kinds", param=param)
        prompts = [numbers] if numbers else [item for item in prompt if not isinstance(item, int)]
    if not prompts:
        raise bad_request(f"{param} is empty", param=param, code="prompt_empty")
    found = []
    for item in prompts:
        if isinstance(item, str):
            tokens = (await service.tokenizer.tokenize(item, special=special, bos=True)).tokens
        else:
            tokens = tuple(item)
        service.require_tokens(tokens, param)
        found.append(tokens)
    return found
