"""Brings messages into the shape that templates expect, before rendering. Knows no template and no token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from optaned.api import ChatError

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def normalize(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with a known role and text content; developers speak as system. Raises ChatError."""
    normal = [_normalize_one(number, message) for number, message in enumerate(messages)]
    if not normal:
        raise ChatError("messages: at least one message is needed")
    return normal


def merge_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without a system role: its text opens the first user message, for templates that know none."""
    texts = [message["content"] for message in messages if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    if not texts:
        return messages
    first = next((number for number, message in enumerate(rest) if message["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": "\n\n".join(texts)}, *rest]
    merged = {**rest[first], "content": "\n\n".join([*texts, rest[first]["content"]])}
    return [*rest[:first], merged, *rest[first + 1 :]]


def as_parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages whose content is a list of one text part, for templates of multimodal models."""
    return [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]


def _normalize_one(number: int, message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if role not in _ROLES:
        known = ", ".join(_ROLES)
        raise ChatError(f"messages[{number}].role: {role!r} is unknown; known are {known}")
    return {**message, "role": _ROLES[role], "content": _text(number, message.get("content"))}


def _text(number: int, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise ChatError(f"messages[{number}].content: text or a list of text parts is needed")
    return "".join(_part_text(f"messages[{number}].content[{place}]", part) for place, part in enumerate(content))


def _part_text(where: str, part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else None
    if not isinstance(text, str):
        raise ChatError(f"{where}: only text parts can be rendered")
    return text
