"""Messages as bytes."""

from __future__ import annotations

import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.generation import FinishReason, ModelInfo, Sampling, SlotView, Timings, Usage, VocabularyInfo
from optaned.engine.frames import LENGTH, MAX_FRAME_BYTES, FrameError, FrameSocket, encode, from_worker_buffer
from optaned.engine.frames import to_worker_buffer as down
from optaned.engine.messages import (
    Cancel,
    CheckGrammar,
    Choices,
    Close,
    Detokenize,
    Embedding,
    EmbedTokens,
    Failed,
    Finished,
    FromWorker,
    Generate,
    Loading,
    Logprob,
    Move,
    Open,
    Opened,
    Piece,
    Pieces,
    Placement,
    Prefilled,
    Promotion,
    Refused,
    Render,
    Rendered,
    Role,
    SchemaGrammar,
    Slots,
    Started,
    Text,
    TierSpec,
    Tokenize,
    Tokens,
    ToWorker,
    Trace,
)
from optaned.testing.ports import RESIDENCY

OPEN = Open(
    role=Role.ENGINE,
    backend="echo",
    options={"a": [1, {"b": None}]},
    files=("/a.gguf",),
    context=100,
    slots=2,
    threads=1,
    batch=8,
    kv_cache="f16",
    placement=Placement(
        digest="d",
        homes=("byte",),
        home_tiers=("pmem0",),
        tiers=(TierSpec(name="dram0", driver="memory", options={"budget": 1}, numa_node=0, budget_bytes=1),),
        promotions=(Promotion("dram0", (0, 1), (7,)),),
        policy="heat",
        policy_options={},
        move_gbps=2.0,
        heat_path=None,
    ),
)
GENERATE = Generate(
    id="a", prompt=(1, 2, 300000), sampling=Sampling(logit_bias=((1, -1.5),)), max_tokens=5, stop=("x", "€"), logprobs=2
)
TO_WORKER: list[ToWorker] = [
    OPEN,
    GENERATE,
    EmbedTokens("e", (1, 2)),
    Cancel("a"),
    Tokenize("t", "grüß", special=True, bos=False),
    Detokenize("d", (1, 2)),
    Render("r", ({"role": "user", "content": "hi"},), continue_assistant=True, template_kwargs={"think": False}),
    CheckGrammar("c", "root ::= x"),
    SchemaGrammar("s", {"type": "object"}),
    Move("m", "pin", 3, None),
    Trace("m", on=True),
    Close(),
]
FROM_WORKER: list[FromWorker] = [
    Loading(0.25),
    Opened(VocabularyInfo(size=3, special={"<s>": 1}), ModelInfo("m", 100, 2, 8, 16), "jinja"),
    Opened(VocabularyInfo(size=3), None, "jinja"),
    Refused(("one", "two"), 65),
    Started("a", 1, 2),
    Prefilled("a", 5, 10),
    Pieces((Piece("a", (1,), "é", (Logprob(b"\xc3", -0.5, ((b"\xc3", -0.5),)),)), Piece("b", (2, 3), ""))),
    Finished("a", FinishReason.STOP, Usage(1, 2, 3), Timings(0.1, 0.2, 0.3), "x"),
    Failed("a", "grammar_invalid", "why"),
    Embedding("e", (0.5, -0.5)),
    Tokens("t", (1,), (b"\xff",)),
    Text("d", "text"),
    Rendered("r", "text", (1, 2)),
    Slots((SlotView(0),), 3),
    Loading(0.5, "promoting 1 GiB of 2 GiB"),
    RESIDENCY,
    Choices(((0, (1, 2)), (1, (0, 3)))),
]


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda m: type(m).__name__)
def test_what_a_worker_says_arrives_as_it_was(message: FromWorker) -> None:
    assert list(from_worker_buffer().feed(encode(message))) == [message]


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda m: type(m).__name__)
def test_what_a_worker_is_told_arrives_as_it_was(message: ToWorker) -> None:
    assert list(down().feed(encode(message))) == [message]


@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_frames_may_be_cut_anywhere(places: list[int]) -> None:
    data = b"".join(encode(message) for message in FROM_WORKER)
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    buffer = from_worker_buffer()
    got = [m for start, end in itertools.pairwise(edges) for m in buffer.feed(data[start:end])]
    assert got == FROM_WORKER


@given(st.binary(max_size=200))
def test_nonsense_is_an_error_and_never_anything_else(body: bytes) -> None:
    buffer = from_worker_buffer()
    try:
        list(buffer.feed(LENGTH.pack(len(body)) + body))
    except FrameError:
        return


def test_an_absurd_length_is_refused_before_it_is_waited_for() -> None:
    with pytest.raises(FrameError, match="longer than"):
        list(from_worker_buffer().feed(LENGTH.pack(MAX_FRAME_BYTES + 1)))


def test_a_frame_socket_says_and_hears_until_the_other_end_closes() -> None:
    ours, theirs = socket.socketpair()
    frames = FrameSocket(theirs)
    ours.sendall(encode(GENERATE) + encode(Cancel("a")))
    ours.shutdown(socket.SHUT_WR)
    assert list(frames.receive()) == [GENERATE, Cancel("a")]
    frames.send(FROM_WORKER[:3])
    frames.close()
    buffer = from_worker_buffer()
    data = b""
    while chunk := ours.recv(4096):
        data += chunk
    assert list(buffer.feed(data)) == FROM_WORKER[:3]
    ours.close()
