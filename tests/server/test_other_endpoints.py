"""Completions, embeddings, and the routes around text and tokens."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from optaned.testing.ports import MODEL
from optaned.testing.serving import Served, chat_body, events_of


def complete(client: httpx2.Client, **body: Any) -> Any:
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_completion(client: httpx2.Client, served: Served) -> None:
    answer = complete(client, prompt="ab", max_tokens=9)
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": "Hello, wörld!", "logprobs": None, "finish_reason": "stop"}]
    assert served.engine.requests[0].prompt == (256, 97, 98)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (["a", "b"], [(256, 97), (256, 98)]),
        ([1, 2], [(1, 2)]),
        ([[1], [2, 3]], [(1,), (2, 3)]),
        (["a", [5]], [(256, 97), (5,)]),
    ],
    ids=str,
)
def test_prompts_of_every_kind(client: httpx2.Client, served: Served, prompt: Any, expected: Any) -> None:
    answer = complete(client, prompt=prompt, n=2)
    assert [request.prompt for request in served.engine.requests] == [p for p in expected for _ in range(2)]
    assert len(answer["choices"]) == 2 * len(expected)
    assert answer["usage"]["prompt_tokens"] == sum(map(len, expected))


def test_a_streamed_completion(client: httpx2.Client) -> None:
    body = {"prompt": "a", "stream": True, "logprobs": 1, "stream_options": {"include_usage": True}}
    *chunks, usage, done = events_of(client.post("/v1/completions", json=body).text)
    assert done == "data: [DONE]"
    assert usage["usage"]["completion_tokens"] == 4
    choices = [c["choices"][0] for c in chunks]
    assert "".join(c["text"] for c in choices) == "Hello, wörld!"
    assert [c["finish_reason"] for c in choices] == [None] * 4 + ["stop"]
    offsets = [offset for c in choices if c["logprobs"] for offset in c["logprobs"]["text_offset"]]
    assert offsets == [0, 5, 7, 12]
    assert choices[0]["logprobs"]["top_logprobs"] == [{"x0": -1.0}]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [257]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["a"] * 9, "n": 2}, "prompt"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "x" * 512}, "prompt"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_completion_refuses(client: httpx2.Client, body: dict[str, Any], param: str) -> None:
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def embed(client: httpx2.Client, **body: Any) -> httpx2.Response:
    return client.post("/v1/embeddings", json=body)


def test_embeddings_as_floats_and_as_base64(client: httpx2.Client) -> None:
    answer = embed(client, input=["a", "b"], model="fake").json()
    assert [entry["index"] for entry in answer["data"]] == [0, 1]
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    vector = answer["data"][0]["embedding"]
    packed = embed(client, input="a", encoding_format="base64", dimensions=4).json()["data"][0]["embedding"]
    assert struct.unpack("<4f", base64.b64decode(packed)) == pytest.approx(vector, abs=1e-6)


def test_what_embeddings_refuse(client: httpx2.Client, served: Served) -> None:
    assert embed(client, input="a", dimensions=3).json()["error"]["param"] == "dimensions"
    assert embed(client, input="a", encoding_format="hex").json()["error"]["param"] == "encoding_format"
    too_long = embed(client, input="x" * 512)
    assert too_long.status_code == 400
    assert too_long.json()["error"]["code"] == "context_length_exceeded"
    served.engine.view = replace(served.engine.view, info=replace(MODEL, embeds=False))
    response = embed(client, input="a")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "embeddings_unsupported"


def test_text_to_tokens_and_back(client: httpx2.Client) -> None:
    assert client.post("/tokenize", json={"content": "hé", "add_special": True}).json() == {
        "tokens": [256, 104, 0xC3, 0xA9]
    }
    pieces = client.post("/tokenize", json={"content": "hé", "with_pieces": True}).json()["tokens"]
    assert pieces == [{"id": 104, "piece": "h"}, {"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]}]
    assert client.post("/detokenize", json={"tokens": [104, 0xC3, 0xA9]}).json() == {"content": "hé"}
    assert client.post("/detokenize", json={"tokens": []}).json() == {"content": ""}
    assert client.post("/detokenize", json={"tokens": [999]}).status_code == 400


def test_a_template_can_be_seen(client: httpx2.Client) -> None:
    body = {"messages": chat_body()["messages"]}
    assert client.post("/apply-template", json=body).json()["prompt"] == "<user>hi\n<assistant>"
