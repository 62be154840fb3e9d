"""POST /v1/embeddings: text or tokens in, vectors out. Knows no generation."""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from optaned.server.body import convert, parse_object, read_body
from optaned.server.completions import token_prompts
from optaned.server.faults import ApiError, api_error, bad_request
from optaned.server.ports import Failure
from optaned.server.replying import json_response
from optaned.server.service import Service

_MOST_INPUTS = 2048


class EmbeddingsBody(msgspec.Struct, kw_only=True):
    """The body of an embeddings request."""

    input: str | list[str | int | list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


async def embeddings(request: Request, service: Service) -> Response:
    """Answer one request. Raises ApiError and Failure."""
    asked = convert(parse_object(await read_body(request, service.settings)), EmbeddingsBody)
    model, info = service.require_model(asked.model)
    if not info.embeds:
        raise api_error(Failure("embeddings_unsupported", f"{model} gives no embeddings"))
    if asked.dimensions not in (None, info.embedding_size):
        text = f"{model} gives {info.embedding_size} dimensions, and only these"
        raise bad_request(text, param="dimensions", code="unsupported_parameter")
    inputs = await token_prompts(asked.input, service, param="input", special=False)
    if len(inputs) > _MOST_INPUTS:
        raise bad_request(f"input takes up to {_MOST_INPUTS} texts", param="input")
    longest = max(map(len, inputs))
    if longest > info.context:
        raise _too_long(longest, info.context)
    vectors = await service.exchanges.run(request.receive, _embed_all(service, inputs))
    count = sum(map(len, inputs))
    data = [
        {"object": "embedding", "index": number, "embedding": _encoded(vector, asked.encoding_format)}
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return json_response({"object": "list", "data": data, "model": model, "usage": usage})


async def _embed_all(service: Service, inputs: Sequence[tuple[int, ...]]) -> list[Sequence[float]]:
    # One after another: each takes a slot of its own, and a long list must not fill the queue.
    name = f"embd-{uuid.uuid4().hex}"
    return [await service.engine.embed(f"{name}-{number}", tokens) for number, tokens in enumerate(inputs)]


def _encoded(vector: Sequence[float], encoding: str) -> Any:
    if encoding == "float":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


def _too_long(tokens: int, context: int) -> ApiError:
    failure = Failure("context_length_exceeded", f"an input has {tokens} tokens, but the context holds {context}")
    return api_error(failure, param="input")
