"""The chat format `jinja`: conversation in, prompt segments out, by the model's own template. Knows no token id.

What a template can do is learned once, from a probe conversation: whether it takes a system role, whether it wants
content as parts, and what it writes between a user's text and the answer.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optaned.api import ChatError, ChatParser, ChatRequest, Segment, VocabularyInfo
from optaned_chat import conversation
from optaned_chat.sandbox import ChatTemplate, RefusedByTemplate, TemplateFault
from optaned_chat.shield import Shield, private_chars
from optaned_chat.thinking import CLOSE, OPEN, ThinkParser, ends_inside

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_OWN_VARIABLES = frozenset({"messages", "add_generation_prompt", "bos_token", "eos_token"})
_THINK_TAGS = frozenset({OPEN, CLOSE})
_SYSTEM, _USER = "probe-of-the-system-role", "probe-of-the-user-role"


@dataclass(frozen=True)
class Manners:
    """What a template was seen to do."""

    takes_system: bool = True
    wants_parts: bool = False
    turn_end: str = ""


class JinjaChat:
    """One vocabulary's template as a `ChatFormat`. `fault` says why it cannot render anything, or is empty."""

    def __init__(
        self, vocabulary: VocabularyInfo, *, now: Callable[[], datetime.datetime] = datetime.datetime.now
    ) -> None:
        self._vocabulary = vocabulary
        self._source = vocabulary.template or CHATML
        self._template: ChatTemplate | None = None
        self.is_builtin = not vocabulary.template
        self.fault = ""
        self._manners = Manners()
        spelling = {token: text for text, token in vocabulary.special.items()}
        self._tokens = {
            "bos_token": spelling.get(vocabulary.bos, "") if vocabulary.bos is not None else "",
            "eos_token": spelling.get(vocabulary.eos, "") if vocabulary.eos is not None else "",
        }
        try:
            self._template = ChatTemplate(self._source, now)
        except TemplateFault as error:
            self.fault = f"the chat template cannot be compiled: {error}"
        else:
            self._manners = self._probe()

    def render(self, request: ChatRequest) -> tuple[Segment, ...]:
        """Return the prompt; no begin token where tokenising adds it by itself (`add_bos`). Raises ChatError."""
        messages = conversation.normalize(request.messages)
        if not self._manners.takes_system:
            messages = conversation.merge_system(messages)
        clash = sorted(_OWN_VARIABLES & set(request.template_kwargs))
        if clash:
            raise ChatError(f"chat_template_kwargs.{clash[0]}: set by the daemon, not by a request")
        used = private_chars([messages, request.template_kwargs, self._source])
        shield = Shield(self._vocabulary.special, used)
        end = shield.fresh() if request.continue_assistant else ""
        covered = [_cover(shield, message) for message in messages]
        if end:
            _mark_end(covered[-1], end)
        text = self._fill(covered, shield.cover(request.template_kwargs), generate=not end)
        if end:
            text = _cut_at(text, end)
        return shield.split(self._without_bos(text))

    def parser(self, rendered: str) -> ChatParser:
        """Return a parser that tells `<think>…</think>` apart, opened if the prompt already opened it."""
        return ThinkParser(opened=ends_inside(rendered, self._manners.turn_end))

    def _fill(self, messages: list[dict[str, Any]], kwargs: Mapping[str, Any], *, generate: bool) -> str:
        if self._template is None:
            raise ChatError(self.fault)
        shaped = conversation.as_parts(messages) if self._manners.wants_parts else messages
        try:
            return self._render(self._template, shaped, kwargs, generate=generate)
        except RefusedByTemplate as error:
            raise ChatError(f"the model's chat template refuses this conversation: {error}") from error
        except TemplateFault as error:
            raise ChatError(f"the model's chat template cannot render this conversation: {error}") from error

    def _render(
        self, template: ChatTemplate, messages: list[dict[str, Any]], kwargs: Mapping[str, Any], *, generate: bool
    ) -> str:
        own = {"messages": messages, "add_generation_prompt": generate, **self._tokens}
        return template.render({"tools": None, **kwargs, **own})

    def _probe(self) -> Manners:
        user = {"role": "user", "content": _USER}
        plain = self._try([user])
        wants_parts = _USER not in plain and _USER in self._try(conversation.as_parts([user]))
        shape = conversation.as_parts if wants_parts else list
        answered = plain if not wants_parts else self._try(shape([user]))
        if _USER not in answered:  # it cannot even say this: nothing can be learned
            return Manners()
        with_system = self._try(shape([{"role": "system", "content": _SYSTEM}, user]))
        turn_end = answered.rpartition(_USER)[2].partition(OPEN)[0].strip()
        return Manners(_SYSTEM in with_system, wants_parts, turn_end)

    def _try(self, messages: list[dict[str, Any]]) -> str:
        if self._template is None:
            return ""
        try:
            return self._render(self._template, messages, {}, generate=True)
        except (RefusedByTemplate, TemplateFault):
            return ""

    def _without_bos(self, text: str) -> str:
        """Models that want a begin token get exactly one: templates write it, and so does tokenising with `add_bos`."""
        return text.removeprefix(self._tokens["bos_token"]) if self._vocabulary.add_bos else text


def _cover(shield: Shield, message: Mapping[str, Any]) -> dict[str, Any]:
    """Cover all text of a message; an assistant's think tags stay, since templates look for them in the history."""
    keep = _THINK_TAGS if message["role"] == "assistant" else frozenset()
    return {key: value if key == "role" else shield.cover(value, keep=keep) for key, value in message.items()}


def _mark_end(message: dict[str, Any], end: str) -> None:
    if message["role"] != "assistant":
        raise ChatError("messages: only an assistant's message can be continued, and it must be the last")
    message["content"] += end


def _cut_at(text: str, end: str) -> str:
    before, found, _ = text.rpartition(end)
    if not found:
        raise ChatError("the model's chat template leaves the last message out, so it cannot be continued")
    return before
