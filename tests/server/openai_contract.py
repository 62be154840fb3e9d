"""What the OpenAI SDK does with this server, as a script: `python openai_contract.py SOCKET`. Works with majors 1 to 3.

Run in a process of its own, so that each major of the SDK comes with the HTTP library that it was built on. The server
behind it answers as `optaned.testing.ports.FakeEngine` does by default.
"""

from __future__ import annotations

import sys
from typing import Any

import openai


def client(path: str, **more: Any) -> openai.OpenAI:
    if int(openai.__version__.split(".")[0]) >= 3:
        import httpx2

        http: Any = openai.DefaultHttpx2Client(transport=httpx2.HTTPTransport(uds=path))
    else:
        import httpx

        http = openai.DefaultHttpxClient(transport=httpx.HTTPTransport(uds=path))
    return openai.OpenAI(base_url="http://optaned/v1", api_key="unused", http_client=http, **more)


MESSAGES: Any = [{"role": "user", "content": "hi"}]


def check_chat(api: openai.OpenAI) -> None:
    answer = api.chat.completions.create(model="fake", messages=MESSAGES, seed=1, max_completion_tokens=50)
    assert answer.choices[0].message.content == "Hello, wörld!"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer._request_id


def check_stream(api: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    chunks = list(api.chat.completions.create(model="fake", messages=MESSAGES, stream=True, stream_options=options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello, wörld!"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


def check_choices_and_logprobs(api: openai.OpenAI) -> None:
    answer = api.chat.completions.create(model="fake", messages=MESSAGES, n=3, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    listed = answer.choices[2].logprobs
    assert listed is not None
    assert listed.content is not None
    assert [entry.token for entry in listed.content] == ["Hello", ", ", "wörld", "!"]
    assert len(listed.content[0].top_logprobs) == 2


def check_json_schema(api: openai.OpenAI) -> None:
    schema: Any = {"name": "answer", "strict": True, "schema": {"type": "object", "properties": {"ok": {}}}}
    wanted: Any = {"type": "json_schema", "json_schema": schema}
    answer = api.chat.completions.create(model="fake", messages=MESSAGES, response_format=wanted)
    assert answer.choices[0].message.content == '{"ok": true}'


def check_other_endpoints(api: openai.OpenAI) -> None:
    assert [model.id for model in api.models.list()] == ["fake", "other"]
    assert api.models.retrieve("fake").owned_by == "optaned"
    completion = api.completions.create(model="fake", prompt="ab", max_tokens=2)
    assert completion.choices[0].text == "Hello, "
    assert completion.choices[0].finish_reason == "length"
    texts = [c.choices[0].text for c in api.completions.create(model="fake", prompt="ab", stream=True)]
    assert "".join(texts) == "Hello, wörld!"
    # The SDK asks for base64 by itself, and decodes it.
    vectors = api.embeddings.create(model="fake", input=["a", "b"])
    assert len(vectors.data) == 2
    assert abs(sum(x * x for x in vectors.data[0].embedding) - 1) < 1e-5


def raised(kind: type[Exception], function: Any, **arguments: Any) -> Any:
    try:
        function(**arguments)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def check_errors(api: openai.OpenAI) -> None:
    create = api.chat.completions.create
    error = raised(openai.NotFoundError, create, model="gpt-9", messages=MESSAGES)
    assert error.code == "model_not_found"
    error = raised(openai.BadRequestError, create, model="fake", messages=MESSAGES, tools=[{"type": "function"}])
    assert error.param == "tools"
    error = raised(openai.BadRequestError, create, model="fake", messages=[{"role": "user", "content": "x" * 600}])
    assert error.code == "context_length_exceeded"
    assert error.request_id


def check_dying_engine(api: openai.OpenAI) -> None:
    stream = api.chat.completions.create(model="fake", messages=[{"role": "user", "content": "die"}], stream=True)
    error = raised(openai.APIError, lambda: list(stream))
    assert error.code == "engine_died"


def check_time_out(path: str) -> None:
    impatient = client(path, timeout=0.3, max_retries=1)
    slow: Any = [{"role": "user", "content": "slow"}]
    raised(openai.APITimeoutError, impatient.chat.completions.create, model="fake", messages=slow)
    # A stream is not quiet: pings come more often than the time-out.
    text = [
        chunk.choices[0].delta.content or ""
        for chunk in impatient.chat.completions.create(model="fake", messages=slow, stream=True)
    ]
    assert "".join(text) == "Hello, wörld!"


def main(path: str) -> None:
    api = client(path, max_retries=0)
    checks = (
        check_chat,
        check_stream,
        check_choices_and_logprobs,
        check_json_schema,
        check_other_endpoints,
        check_errors,
        check_dying_engine,
    )
    for check in checks:
        check(api)
    check_time_out(path)
    print(f"openai {openai.__version__}: {len(checks) + 1} checks passed")


if __name__ == "__main__":
    main(sys.argv[1])
