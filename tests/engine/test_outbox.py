"""Fast steps are told together, slow ones at once; nothing is lost, reordered, or held back for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optaned.domain.generation import FinishReason, Timings, Usage
from optaned.engine.messages import Finished, FromWorker, Piece, Pieces
from optaned.engine.outbox import Outbox


def step(*ids: str) -> list[FromWorker]:
    return [Pieces(tuple(Piece(one, (1,), "x") for one in ids))]


def end(one: str) -> Finished:
    return Finished(one, FinishReason.STOP, Usage(), Timings())


def told(sent: list[FromWorker], one: str) -> str:
    return "".join(p.text for m in sent if isinstance(m, Pieces) for p in m.pieces if p.id == one)


def test_slow_steps_are_told_at_once() -> None:
    outbox = Outbox(window_s=0.033)
    for n in range(5):
        assert outbox.pass_on(step("a"), now_s=n * 0.05, more=True) == step("a")


def test_fast_steps_are_told_together_in_time() -> None:
    outbox = Outbox(window_s=0.033)
    frames = [outbox.pass_on(step("a", "b"), now_s=n * 0.007, more=True) for n in range(29)]
    sent = [m for frame in frames for m in frame]
    assert 6 <= len(sent) <= 9
    assert told(sent, "a") == told(sent, "b")
    assert len(told(sent, "a")) > 24


def test_the_end_of_an_answer_takes_along_what_was_held() -> None:
    outbox = Outbox(window_s=1)
    assert outbox.pass_on(step("a"), now_s=0.0, more=True) == step("a")
    assert outbox.pass_on(step("a"), now_s=0.01, more=True) == []
    assert outbox.pass_on([*step("a"), end("a")], now_s=0.02, more=True) == [
        Pieces((Piece("a", (1, 1), "xx"),)),
        end("a"),
    ]


def test_nothing_is_held_before_a_step_that_may_be_long() -> None:
    outbox = Outbox(window_s=1)
    outbox.pass_on(step("a"), now_s=0.0, more=True)
    assert outbox.pass_on(step("a"), now_s=0.01, more=False) == step("a")


@given(
    st.lists(
        st.tuples(st.floats(0.0001, 0.2), st.sets(st.sampled_from("abc"), min_size=1), st.booleans()), max_size=60
    ),
    st.floats(0.001, 0.1),
)
def test_nothing_is_lost_and_nothing_waits_longer_than_the_window_and_a_step(
    steps: list[tuple[float, set[str], bool]], window_s: float
) -> None:
    outbox, now_s, sent, waiting_since = Outbox(window_s=window_s), 0.0, [], None
    longest = max((took for took, _, _ in steps), default=0.0)
    for took_s, ids, more in steps:
        now_s += took_s
        out = outbox.pass_on(step(*sorted(ids)), now_s=now_s, more=more)
        waiting_since = None if out else (waiting_since or now_s)
        assert waiting_since is None or now_s - waiting_since <= window_s + longest
        sent += out
    sent += outbox.pass_on([end("a")], now_s=now_s, more=False)
    for one in "abc":
        assert len(told(sent, one)) == sum(one in ids for _, ids, _ in steps)
