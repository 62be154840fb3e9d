"""POST /v1/chat/completions: a conversation in, the assistant's answer out. Knows no template and no process."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from optaned.domain.generation import ModelInfo
from optaned.engine.messages import Generate, Rendered
from optaned.hooks.drivers import ChatParser
from optaned.server.body import convert, parse_object, read_body
from optaned.server.chat_chunks import ChatChunks, ChatMessage, PlainParser
from optaned.server.conversation import Message, conversation
from optaned.server.faults import api_error, bad_request
from optaned.server.grammars import ResponseFormat, grammar_of
from optaned.server.parameters import Generation, derive_seed, fit_tokens, refuse_unsupported, sampling_of
from optaned.server.ports import Failure
from optaned.server.replying import Reply, Streamed, whole
from optaned.server.service import Service


class ChatBody(Generation, kw_only=True):
    """The body of a chat request."""

    messages: list[Message]
    max_completion_tokens: Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    reasoning_effort: str | None = None
    reasoning_format: str | None = None
    reasoning: str | None = None

    @property
    def wanted_tokens(self) -> tuple[int | None, str]:
        """Return the asked length of the answer and the name it came under; the newer name wins."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens, "max_completion_tokens"
        return self.max_tokens, "max_tokens"

    def template_kwargs(self, *, constrained: bool) -> dict[str, Any]:
        """Return what the template is told beside the messages. A grammar rules out thinking aloud first."""
        told: dict[str, Any] = {}
        if self.reasoning_effort is not None:
            told["reasoning_effort"] = self.reasoning_effort
        if constrained or self.reasoning == "off" or self.reasoning_effort == "none":
            told["enable_thinking"] = False
        elif self.reasoning == "on":
            told["enable_thinking"] = True
        return {**told, **self.chat_template_kwargs}


async def chat_completions(request: Request, service: Service) -> Response:
    """Answer one request. Raises ApiError and Failure."""
    body = parse_object(await read_body(request, service.settings))
    refuse_unsupported(body, ChatBody, service)
    asked = convert(body, ChatBody)
    model, info = service.require_model(asked.model)
    reply, rendered, constrained = await _prepare(asked, service, model=model, info=info)

    def parser() -> ChatParser:
        # A grammar's answer is content from its first token on, whatever section the prompt left open.
        raw = constrained or asked.reasoning_format == "none"
        return PlainParser() if raw else service.parsers(rendered.text)

    numbers = range(asked.n)
    if not asked.stream:
        return await whole(
            service, reply, [ChatMessage(n, parser(), logprobs=asked.logprobs) for n in numbers], request.receive
        )
    chunks = [
        ChatChunks(n, parser(), base=reply.base, usage=asked.counts_usage, logprobs=asked.logprobs) for n in numbers
    ]
    return Streamed(service, reply, chunks)


async def _prepare(asked: ChatBody, service: Service, *, model: str, info: ModelInfo) -> tuple[Reply, Rendered, bool]:
    _check(asked, service)
    grammar = await grammar_of(asked.response_format, asked.grammar, service)
    rendered = await render(asked.messages, service, asked=asked, constrained=grammar is not None)
    wanted, param = asked.wanted_tokens
    try:
        max_tokens = fit_tokens(wanted, len(rendered.tokens), info.context, param=param)
    except Failure as failure:
        raise api_error(failure, param="messages") from None
    sampling = sampling_of(asked, service, grammar=grammar)
    name = f"chatcmpl-{uuid.uuid4().hex}"
    requests = tuple(
        Generate(
            id=f"{name}-{number}",
            prompt=rendered.tokens,
            sampling=replace(sampling, seed=derive_seed(sampling.seed, number)),
            max_tokens=max_tokens,
            stop=asked.stops,
            logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
        )
        for number in range(asked.n)
    )
    base = {"id": name, "created": int(time.time()), "model": model, "system_fingerprint": service.fingerprint()}
    return Reply(requests, asked.n, base, "chat.completion", asked.counts_usage), rendered, grammar is not None


def _check(asked: ChatBody, service: Service) -> None:
    if asked.n > service.settings.max_choices:
        raise bad_request(f"n is at most {service.settings.max_choices}", param="n")
    if asked.top_logprobs is not None and not asked.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", param="top_logprobs")
    if asked.reasoning not in (None, "auto", "on", "off"):
        raise bad_request("reasoning is auto, on or off", param="reasoning")
    if asked.continue_final_message and asked.messages[-1:] and asked.messages[-1].role != "assistant":
        raise bad_request("the last message is not the assistant's", param="continue_final_message")


async def render(messages: list[Message], service: Service, *, asked: ChatBody, constrained: bool = False) -> Rendered:
    """Return the conversation as the model reads it. Raises ApiError 400 when the format cannot say it."""
    try:
        return await service.tokenizer.render(
            conversation(messages),
            continue_assistant=asked.continue_final_message,
            template_kwargs=asked.template_kwargs(constrained=constrained),
        )
    except Failure as failure:
        raise api_error(failure, param="messages") from None
