"""A chat request's messages: which are accepted, and what a chat format gets of them. Knows no template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from optaned.server.faults import bad_request


class Part(msgspec.Struct):
    """One part of a message's content; only text can be answered."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, kw_only=True):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


def conversation(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages as a chat format takes them: plain dicts, text parts joined, `developer` as `system`.

    Raises ApiError 400 for no messages, and for content that is not text.
    """
    if not messages:
        raise bad_request("messages is empty", param="messages")
    return [_plain(message, f"messages[{number}]") for number, message in enumerate(messages)]


def _plain(message: Message, param: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role}
    if message.content is None and message.role != "assistant":
        raise bad_request(f"a message of role {message.role} needs content", param=f"{param}.content")
    plain["content"] = _text(message.content or "", f"{param}.content")
    for name in ("name", "reasoning_content", "tool_calls", "tool_call_id"):
        value = getattr(message, name)
        if value is not None:
            plain[name] = value
    return plain


def _text(content: str | list[Part], param: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for number, part in enumerate(content):
        if part.type != "text":
            text = f"content of type {part.type[:40]!r} is not supported; this server reads text alone"
            raise bad_request(text, param=f"{param}[{number}].type", code="unsupported_content")
        if part.text is None:
            raise bad_request("a part of type text needs text", param=f"{param}[{number}].text")
        texts.append(part.text)
    return "\n".join(texts)
