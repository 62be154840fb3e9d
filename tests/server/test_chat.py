"""What a chat request answers, whole and streamed."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from optaned.testing.serving import Served, chat_body, events_of

PATH = "/v1/chat/completions"


def ask(client: httpx2.Client, **more: Any) -> Any:
    response = client.post(PATH, json=chat_body(**more))
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: httpx2.Client, **more: Any) -> list[Any]:
    return events_of(client.post(PATH, json=chat_body(stream=True, **more)).text)


def refusal(client: httpx2.Client, **more: Any) -> Any:
    response = client.post(PATH, json=chat_body(**more))
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_an_answer_is_a_chat_completion(client: httpx2.Client, served: Served) -> None:
    answer = ask(client)
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "fake"
    assert answer["system_fingerprint"].startswith("fp_")
    choice = answer["choices"][0]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello, wörld!", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    prompt = len(served.engine.requests[0].prompt)
    assert answer["usage"]["prompt_tokens"] == prompt
    assert answer["usage"]["total_tokens"] == prompt + 4
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert answer["timings"]["predicted_per_second"] == 40


def test_every_chunk_of_a_stream_is_complete(client: httpx2.Client) -> None:
    *chunks, done = stream(client)
    assert done == "data: [DONE]"
    assert len({(c["id"], c["created"], c["model"]) for c in chunks}) == 1
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "Hello, wörld!"
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all("usage" not in c for c in chunks)


def test_usage_comes_in_one_more_chunk_when_asked_for(client: httpx2.Client) -> None:
    *chunks, last, _ = stream(client, stream_options={"include_usage": True})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert all(c["usage"] is None for c in chunks)


def test_thinking_is_told_apart(client: httpx2.Client, served: Served) -> None:
    served.engine.answer = lambda _: ("<think>", "hm", "</think>", "yes")
    answer = ask(client)
    assert answer["choices"][0]["message"]["content"] == "yes"
    assert answer["choices"][0]["message"]["reasoning_content"] == "hm"
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 1
    deltas = [c["choices"][0]["delta"] for c in stream(client)[:-1]]
    assert {"reasoning_content": "hm"} in deltas
    assert {"content": "yes"} in deltas
    assert served.parsed[0] == "<user>hi\n<assistant>"


def test_raw_reasoning_can_be_asked_for(client: httpx2.Client, served: Served) -> None:
    served.engine.answer = lambda _: ("<think>", "hm", "</think>", "yes")
    assert ask(client, reasoning_format="none")["choices"][0]["message"]["content"] == "<think>hm</think>yes"


def test_reasoning_off_reaches_the_template(client: httpx2.Client, served: Served) -> None:
    ask(client, reasoning="off", chat_template_kwargs={"x": 1})
    assert served.tokenizer.kwargs == {"enable_thinking": False, "x": 1}


def test_n_choices_have_seeds_of_their_own_and_count_the_prompt_once(client: httpx2.Client, served: Served) -> None:
    answer = ask(client, n=3, seed=5)
    seeds = [request.sampling.seed for request in served.engine.requests]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["prompt_tokens"] == len(served.engine.requests[0].prompt)
    ask(client, n=3, seed=5)
    assert [request.sampling.seed for request in served.engine.requests[3:]] == seeds


def test_n_choices_stream_side_by_side(client: httpx2.Client) -> None:
    *chunks, _ = stream(client, n=2)
    for index in (0, 1):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert mine[-1]["finish_reason"] == "stop"


def test_logprobs(client: httpx2.Client) -> None:
    listed = ask(client, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in listed] == ["Hello", ", ", "wörld", "!"]
    assert listed[2]["bytes"] == list("wörld".encode())
    assert [top["token"] for top in listed[0]["top_logprobs"]] == ["x0", "x1"]
    chunks = stream(client, logprobs=True)
    streamed = [e["token"] for c in chunks[:-1] for e in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == ["Hello", ", ", "wörld", "!"]


def test_a_length_is_what_was_asked_or_what_fits(client: httpx2.Client, served: Served) -> None:
    assert ask(client, max_tokens=2)["choices"][0]["finish_reason"] == "length"
    ask(client, max_tokens=9, max_completion_tokens=3)
    ask(client)
    prompt = len(served.engine.requests[0].prompt)
    assert [r.max_tokens for r in served.engine.requests] == [2, 3, 512 - prompt]


def test_a_prompt_that_does_not_fit_is_told_with_both_numbers(client: httpx2.Client) -> None:
    error = refusal(client, text="x" * 600)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert "619" in error["message"]
    assert "512" in error["message"]
    assert refusal(client, max_tokens=511)["code"] == "context_length_exceeded"


def test_stop_strings_as_text_or_list(client: httpx2.Client, served: Served) -> None:
    assert ask(client, stop="wör")["choices"][0]["message"]["content"] == "Hello, "
    ask(client, stop=["a", "b"])
    assert served.engine.requests[-1].stop == ("a", "b")
    assert refusal(client, stop=["a", "b", "c", "d", "e"])["param"] == "stop"
    assert refusal(client, stop="")["param"] == "stop"


def test_parts_of_text_are_joined_and_a_developer_is_a_system(client: httpx2.Client, served: Served) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ask(client, messages=[{"role": "developer", "content": "d"}, {"role": "user", "content": parts}])
    assert served.tokenizer.rendered[-1] == [
        {"role": "system", "content": "d"},
        {"role": "user", "content": "a\nb"},
    ]


def test_a_shape_becomes_a_grammar_and_its_answer_is_never_thought(client: httpx2.Client, served: Served) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    for wanted in (schema, {"type": "json_object"}):
        assert ask(client, response_format=wanted)["choices"][0]["message"]["content"] == '{"ok": true}'
        assert served.engine.requests[-1].sampling.grammar == "root ::= json"
    assert served.parsed == []
    assert served.tokenizer.kwargs["enable_thinking"] is False
    ask(client, response_format={"type": "text"})
    assert served.engine.requests[-1].sampling.grammar is None
    ask(client, grammar="root ::= x")
    assert served.engine.requests[-1].sampling.grammar == "root ::= x"


def test_sampling_parameters_arrive(client: httpx2.Client, served: Served) -> None:
    given = {
        "temperature": 0.5,
        "top_k": -1,
        "top_p": 0.25,
        "min_p": 0.5,
        "typical_p": 0.75,
        "repeat_penalty": 1.5,
        "repeat_last_n": 7,
        "frequency_penalty": -1,
        "presence_penalty": 2,
        "dry_multiplier": 0.5,
        "mirostat": 2,
        "mirostat_tau": 4,
    }
    ask(client, **given, logit_bias={"65": -100})
    sampling = served.engine.requests[0].sampling
    assert {name: getattr(sampling, name) for name in given} == given | {"top_k": 0}
    assert sampling.logit_bias == ((65, -100.0),)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"functions": [{}]}, "functions"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {}}, "audio"),
        ({"n": 17}, "n"),
        ({"n": 0}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"257": 1}}, "logit_bias"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}},
            "response_format",
        ),
        ({"response_format": {"type": "json_object"}, "grammar": "root ::= x"}, "grammar"),
        ({"grammar": "nonsense"}, "grammar"),
        ({"stream": "yes"}, "stream"),
        ({"continue_final_message": True}, "continue_final_message"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_refused_by_name(
    client: httpx2.Client, served: Served, more: dict[str, Any], param: str
) -> None:
    error = refusal(client, **more)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert served.engine.requests == []


def test_neutral_values_hints_and_null_are_fine(client: httpx2.Client) -> None:
    ask(client, tools=[], tool_choice="none", user="me", store=True, seed=None, stop=None, modalities=["text"])


def test_an_unknown_parameter_is_logged_once_by_name(client: httpx2.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ask(client, frobnicate="canary")
    ask(client, frobnicate="canary")
    assert [r.message for r in caplog.records if "frobnicate" in r.message] == [
        "parameter 'frobnicate' has no effect and is ignored"
    ]
    assert "canary" not in caplog.text


def test_the_loaded_model_answers_when_none_is_named(client: httpx2.Client) -> None:
    body = chat_body()
    del body["model"]
    assert client.post(PATH, json=body).json()["model"] == "fake"


@pytest.mark.parametrize("name", ["other", "gpt-4"])
def test_another_model_is_a_404_that_names_the_loaded_one(client: httpx2.Client, name: str) -> None:
    response = client.post(PATH, json=chat_body(model=name))
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "model_not_found"
    assert "fake is loaded" in error["message"]


def test_text_is_ascii_on_the_wire(client: httpx2.Client, served: Served) -> None:
    served.engine.answer = lambda _: ("a\u2028b", "\x85", "é")
    text = client.post(PATH, json=chat_body(stream=True)).text
    assert text.isascii()
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in events_of(text)[:-1]) == "a\u2028b\x85é"
