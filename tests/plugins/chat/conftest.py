"""Templates of the kinds that models come with, written for these tests, and the vocabulary each belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from optaned.api import ChatRequest, Segment, VocabularyInfo
from optaned_chat.jinja import JinjaChat

LLAMA_LIKE = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set intro = messages[0]['content'] | trim %}{% set messages = messages[1:] %}
{%- else %}{% set intro = '' %}{% endif %}
{{- '<|head|>system<|/head|>\\n\\nToday is ' + strftime_now('%d %b %Y') + '\\n\\n' + intro + '<|eot|>' }}
{%- for message in messages %}
    {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\\n\\n' }}{% endif %}
"""

GEMMA_LIKE = """\
{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}
{% for message in messages %}
{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% set role = 'model' if message.role == 'assistant' else message.role %}
{{ '<turn>' + role + '\\n' + message.content | trim + '<end>\\n' }}{% endfor %}
{% if add_generation_prompt %}<turn>model
{% endif %}"""

QWEN_LIKE = """\
{%- for message in messages %}
    {%- set text = message.content %}
    {%- if message.role == 'assistant' and '</think>' in text %}
        {%- set text = text.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}
    {%- else %}{{ '<think>\\n' }}{% endif %}
{%- endif %}"""

PARTS_ONLY = """\
{% for message in messages %}[{{ message.role }}]{% for part in message.content %}
{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}
{% endfor %}[assistant]"""

_SPECIAL = {
    "chatml": ("<|end|>", "<|im_start|>", "<|im_end|>"),
    "llama": ("<|begin|>", "<|eot|>", "<|head|>", "<|/head|>"),
    "gemma": ("<bos>", "<eos>", "<turn>", "<end>"),
    "qwen": ("<|end|>", "<|im_end|>", "<|im_start|>"),
    "parts": ("<s>", "</s>"),
}
_TEMPLATES = {"chatml": None, "llama": LLAMA_LIKE, "gemma": GEMMA_LIKE, "qwen": QWEN_LIKE, "parts": PARTS_ONLY}


@dataclass(frozen=True)
class Speaker:
    """A format and a short way to render with it."""

    chat: JinjaChat
    vocabulary: VocabularyInfo

    def segments(self, *turns: tuple[str, object], **options: object) -> tuple[Segment, ...]:
        messages = tuple({"role": role, "content": content} for role, content in turns)
        return self.chat.render(ChatRequest(messages, **options))  # type: ignore[arg-type]

    def text(self, *turns: tuple[str, object], **options: object) -> str:
        return "".join(segment.text for segment in self.segments(*turns, **options))


def make_speaker(template: str | None, special: tuple[str, ...], *, add_bos: bool = False) -> Speaker:
    ids = {spelling: number for number, spelling in enumerate(special)}
    vocabulary = VocabularyInfo(size=100, bos=0, eos=1, add_bos=add_bos, template=template, special=ids)
    return Speaker(JinjaChat(vocabulary), vocabulary)


@pytest.fixture
def speak() -> Callable[..., Speaker]:
    """Return a maker: `speak("llama")`, or `speak("qwen", add_bos=True)`, or `speak(template="…")`."""

    def make(kind: str = "chatml", *, template: str | None = None, add_bos: bool = False) -> Speaker:
        return make_speaker(template or _TEMPLATES[kind], _SPECIAL[kind], add_bos=add_bos)

    return make
