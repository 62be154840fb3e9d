"""Chat formats. `jinja` renders a conversation with the GGUF's own template, in a sandbox; it knows no token id."""

from __future__ import annotations

from optaned.api import ChatSetting, Driver, Env, Options, hookimpl
from optaned_chat.jinja import JinjaChat

OPTANED_API = (1, 0)


def open_jinja(name: str, setting: ChatSetting, env: Env) -> JinjaChat:
    """Return the format of this vocabulary's template; a model without one speaks ChatML, which is logged."""
    chat = JinjaChat(setting.vocabulary)
    model = setting.vocabulary.name or name
    if chat.is_builtin:
        env.log.warning("model %s brings no chat template: using ChatML", model)
    if chat.fault:
        env.log.warning("model %s: %s; chat requests will be refused, completions work", model, chat.fault)
    return chat


@hookimpl
def optaned_chat_formats() -> tuple[Driver, ...]:
    summary = "the GGUF's own Jinja template, sandboxed; <think> sections told apart"
    return (Driver("jinja", Options, open_jinja, summary, nonblocking=True),)
