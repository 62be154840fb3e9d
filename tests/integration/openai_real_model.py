"""What the OpenAI SDK does with a daemon and a real model: `python openai_real_model.py SOCKET MODEL`. Majors 1 to 3.

Run in a process of its own, as `tests/server/openai_contract.py` is, whose folder must be on PYTHONPATH. Nothing here
depends on what the model says, only on what must be true of any answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import openai
from openai_contract import client, raised

QUESTION: Any = [{"role": "user", "content": "Why is the sky blue?"}]
LONG: Any = [{"role": "user", "content": "The river runs over the old stones. " * 200}]


def check_chat(api: openai.OpenAI, model: str) -> None:
    def ask() -> Any:
        return api.chat.completions.create(model=model, messages=QUESTION, seed=7, temperature=0.8, max_tokens=24)

    first, second = ask(), ask()
    assert first.choices[0].message.content
    assert first.choices[0].message.content == second.choices[0].message.content
    assert first.choices[0].finish_reason == "length"
    assert first.usage.completion_tokens == 24
    assert second.usage.prompt_tokens_details.cached_tokens > 0
    assert first.model == model


def check_stream(api: openai.OpenAI, model: str) -> None:
    options: Any = {"include_usage": True}
    arguments: Any = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    whole = api.chat.completions.create(**arguments).choices[0].message.content
    chunks = list(api.chat.completions.create(**arguments, stream=True, stream_options=options))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 24


def check_choices_and_logprobs(api: openai.OpenAI, model: str) -> None:
    answer = api.chat.completions.create(
        model=model, messages=QUESTION, n=3, logprobs=True, top_logprobs=2, temperature=1, max_tokens=8
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
        assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)


def check_json(api: openai.OpenAI, model: str) -> None:
    shape = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "sure": {"type": "boolean"}},
        "required": ["colour", "sure"],
        "additionalProperties": False,
    }
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": shape}}
    answer = api.chat.completions.create(model=model, messages=QUESTION, response_format=wanted, max_tokens=100)
    found = json.loads(answer.choices[0].message.content or "")
    assert found["colour"] in ("red", "blue")
    assert isinstance(found["sure"], bool)
    assert len(found) == 2


def check_other_endpoints(api: openai.OpenAI, model: str) -> None:
    assert [listed.id for listed in api.models.list()] == [model]
    completion = api.completions.create(model=model, prompt="One, two, three,", max_tokens=6, temperature=0, stop="\n")
    assert completion.choices[0].text
    vectors = [item.embedding for item in api.embeddings.create(model=model, input=["a cat", "a dog", "a cat"]).data]
    assert vectors[0] == vectors[2] != vectors[1]
    assert abs(sum(x * x for x in vectors[0]) - 1) < 1e-4


def check_errors(api: openai.OpenAI, model: str) -> None:
    create = api.chat.completions.create
    assert raised(openai.NotFoundError, create, model="gpt-9", messages=QUESTION).code == "model_not_found"
    tools: Any = [{"type": "function", "function": {"name": "f"}}]
    assert raised(openai.BadRequestError, create, model=model, messages=QUESTION, tools=tools).param == "tools"
    error = raised(openai.BadRequestError, create, model=model, messages=LONG * 3)
    assert error.code == "context_length_exceeded"


def check_time_out(path: str, model: str) -> None:
    """A stream's pings keep an impatient client, a whole answer does not; leaving frees the slot."""
    impatient = client(path, timeout=1.0, max_retries=0)
    create = impatient.chat.completions.create
    raised(openai.APITimeoutError, create, model=model, messages=LONG, max_tokens=4)
    assert list(create(model=model, messages=[{"role": "user", "content": "stones " * 300}], max_tokens=4, stream=True))


def check_dying_engine(api: openai.OpenAI, model: str) -> None:
    stream = api.chat.completions.create(model=model, messages=QUESTION, stream=True, max_tokens=500)
    next(iter(stream))
    os.kill(ready(api)["engine_pid"], signal.SIGKILL)
    assert raised(openai.APIError, lambda: list(stream)).code == "engine_died"
    deadline = time.monotonic() + 60
    while not ready(api)["ready"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    check_chat(api, model)


def ready(api: openai.OpenAI) -> Any:
    """Return what /ready says, whatever its status."""
    try:
        return json.loads(api.get("http://optaned/ready", cast_to=str))
    except openai.APIStatusError as error:
        return error.response.json()


def main(path: str, model: str) -> None:
    api = client(path, max_retries=0, timeout=120.0)
    checks = (
        check_chat,
        check_stream,
        check_choices_and_logprobs,
        check_json,
        check_other_endpoints,
        check_errors,
        check_dying_engine,
    )
    for check in checks:
        check(api, model)
    check_time_out(path, model)
    print(f"openai {openai.__version__}: {len(checks) + 1} checks passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
