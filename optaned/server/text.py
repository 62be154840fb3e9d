"""Text and tokens: /tokenize, /detokenize, /apply-template. Answered by the tokenizer, whatever the engine does."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from optaned.server.body import convert, parse_object, read_body
from optaned.server.chat import ChatBody, render
from optaned.server.faults import bad_request
from optaned.server.replying import json_response
from optaned.server.service import Service


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Text to cut; `with_pieces` also returns each token's text."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(msgspec.Struct, kw_only=True):
    """Tokens to join."""

    tokens: list[int]


async def tokenize(request: Request, service: Service) -> Response:
    """POST /tokenize: {"content"} → {"tokens"}; a piece that is no whole text comes as a list of bytes."""
    asked = convert(parse_object(await read_body(request, service.settings)), TokenizeBody)
    found = await service.tokenizer.tokenize(asked.content, special=asked.parse_special, bos=asked.add_special)
    if not asked.with_pieces:
        return json_response({"tokens": found.tokens})
    pairs = zip(found.tokens, found.pieces, strict=True)
    return json_response({"tokens": [{"id": token, "piece": _piece(piece)} for token, piece in pairs]})


async def detokenize(request: Request, service: Service) -> Response:
    """POST /detokenize: {"tokens"} → {"content"}. Raises ApiError 400 for ids outside of the vocabulary."""
    asked = convert(parse_object(await read_body(request, service.settings)), DetokenizeBody)
    tokens = tuple(asked.tokens)
    if not tokens:
        return json_response({"content": ""})
    if min(tokens) < 0 or max(tokens) >= 1 << 31:
        raise bad_request("tokens holds a number that is no token id", param="tokens", code="token_invalid")
    if service.engine.view.vocabulary is not None:
        service.require_tokens(tokens, "tokens")
    return json_response({"content": await service.tokenizer.detokenize(tokens)})


async def apply_template(request: Request, service: Service) -> Response:
    """POST /apply-template: the messages of a chat request → {"prompt"}, as the model would read it."""
    asked = convert(parse_object(await read_body(request, service.settings)), ChatBody)
    rendered = await render(asked.messages, service, asked=asked)
    return json_response({"prompt": rendered.text, "tokens": len(rendered.tokens)})


def _piece(piece: bytes) -> Any:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
