"""What shape an answer must have: `response_format` and `grammar`, as one grammar. Knows no grammar's syntax."""

from __future__ import annotations

from typing import Any

import msgspec

from optaned.server.faults import api_error, bad_request
from optaned.server.ports import Failure
from optaned.server.service import Service


class JsonSchema(msgspec.Struct, kw_only=True):
    """OpenAI's named schema; `schema` missing means any object."""

    name: str = ""
    schema: dict[str, Any] | bool = True
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """OpenAI's `response_format`; local servers also take `schema` beside type json_object."""

    type: str
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None


async def grammar_of(wanted: ResponseFormat | None, grammar: str | None, service: Service) -> str | None:
    """Return the grammar that the answer must follow, if any. Raises ApiError 400 that names the parameter."""
    schema = None if wanted is None else _schema(wanted)
    if schema is None:
        return await _checked(grammar, service)
    if grammar:
        raise bad_request("response_format and grammar rule each other out", param="grammar")
    try:
        return await service.tokenizer.schema_grammar(schema)
    except Failure as failure:
        raise api_error(failure, param="response_format") from None


async def _checked(grammar: str | None, service: Service) -> str | None:
    if not grammar:
        return None
    if "\0" in grammar:
        raise bad_request("the grammar holds a NUL character", param="grammar")
    try:
        await service.tokenizer.check_grammar(grammar)
    except Failure as failure:
        raise api_error(failure, param="grammar") from None
    return grammar


def _schema(wanted: ResponseFormat) -> dict[str, Any] | None:
    match wanted.type:
        case "text":
            return None
        case "json_object":
            return wanted.schema or {}
        case "json_schema" if wanted.json_schema is not None:
            schema = wanted.json_schema.schema
            return schema if isinstance(schema, dict) else {}
        case "json_schema":
            raise bad_request("type json_schema needs a json_schema", param="response_format.json_schema")
    raise bad_request("type is text, json_object or json_schema", param="response_format.type")
