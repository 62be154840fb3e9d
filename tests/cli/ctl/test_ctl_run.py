from __future__ import annotations

import threading

import pytest


def test_the_answer_goes_to_stdout_and_nothing_else_does(ctl, daemon) -> None:
    daemon.script = [{"reasoning": "Hm."}, {"comment": "ping"}, "Hello", " \x1b[31mthere"]
    found = ctl("run", "What", "is", "this?")
    assert (found.code, found.out, found.err) == (0, "Hello \x1b[31mthere\n", "")
    assert daemon.asked == [[{"role": "user", "content": "What is this?"}]]


def test_what_is_piped_in_follows_the_prompt(ctl, daemon) -> None:
    assert ctl("run", "Explain:", stdin="line 1\nline 2\n").code == 0
    assert ctl("run", stdin="alone\n").code == 0
    assert [messages[0]["content"] for messages in daemon.asked] == ["Explain:\n\nline 1\nline 2", "alone"]


def test_choices_are_sent_only_if_they_were_made(ctl, daemon) -> None:
    ctl("run", "Hi")
    ctl(
        "run",
        "Hi",
        "--system",
        "Be short.",
        "--max-tokens",
        "9",
        "--temperature",
        "0",
        "--seed",
        "4",
        "--model",
        "tiny",
    )
    plain, chosen = (body for _, _, body in daemon.requests)
    assert set(plain) == {"messages", "stream", "stream_options"}
    assert {name: chosen[name] for name in ("max_tokens", "temperature", "seed", "model")} == {
        "max_tokens": 9, "temperature": 0, "seed": 4, "model": "tiny",
    }  # fmt: skip
    assert chosen["messages"][0] == {"role": "system", "content": "Be short."}


def test_no_prompt_is_a_usage_error(ctl) -> None:
    found = ctl("run")
    assert found.code == 64
    assert "no prompt" in found.err


def test_verbose_prints_timings_to_stderr(ctl) -> None:
    found = ctl("run", "Hi", "--verbose")
    assert found.out == "Hello there\n"
    assert "5 tokens, 3 of them reused" in found.err
    assert "2 tokens, 98.1 tokens/s" in found.err


@pytest.mark.parametrize(
    "status, code, exit_code",
    [(503, "model_loading", 75), (429, "queue_full", 75), (403, None, 77), (400, None, 1), (503, "model_failed", 1)],
)
def test_a_refusal_is_one_line_and_a_truthful_exit_code(ctl, daemon, status: int, code: str, exit_code: int) -> None:
    daemon.refusal = (status, {"error": {"message": "tiny says\nno", "type": "x", "param": None, "code": code}})
    found = ctl("run", "Hi")
    assert (found.code, found.out, found.err) == (exit_code, "", "optanectl: tiny says no\n")


@pytest.mark.parametrize(
    "end, exit_code, message",
    [
        ({"error": {"message": "the engine died", "code": "engine_died"}}, 1, "the engine died"),
        ("CUT", 69, "closed the connection too early"),
    ],
)
def test_an_answer_that_breaks_off_keeps_what_came_and_fails(ctl, daemon, end, exit_code: int, message: str) -> None:
    daemon.script = ["Hel", end]
    found = ctl("run", "Hi")
    assert (found.code, found.out) == (exit_code, "Hel\n")
    assert message in found.err


def test_something_that_is_no_daemon_is_told_apart(ctl, daemon) -> None:
    daemon.script = [{"raw": b"data: <html>\n\n"}]
    found = ctl("run", "Hi")
    assert found.code == 69
    assert "is not the daemon" in found.err


def test_a_reader_that_leaves_ends_the_command_quietly(piping, daemon) -> None:
    daemon.script = ["x" * 100_000] * 20
    with piping("run", "Hi") as writer:
        writer.stdout.read(1)
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == 141


def test_ctrl_c_cancels_the_answer_and_keeps_what_came(on_terminal, daemon) -> None:
    daemon.script = ["Hello", {"wait": threading.Event()}]
    session = on_terminal("run", "Hi")
    session.expect("Hello")
    session.type("\x03")
    session.expect("answer cancelled")
    assert session.finish() == 130
    assert daemon.left.wait(5)


def test_a_terminal_sees_why_nothing_comes_then_reasoning_dim_then_the_speed(on_terminal, daemon, view) -> None:
    go = threading.Event()
    daemon.slots[0] |= {"state": "prefill", "prefilled_tokens": 512, "prompt_tokens": 2000}
    daemon.script = [{"wait": go}, {"reasoning": "Hm."}, "Hello"]
    session = on_terminal("run", "Hi")
    session.expect("reading the prompt: 512 of 2000 tokens")
    daemon.ready = view(thermal={"paused": True, "reason": "dimm 2 at 79 °C"})
    session.expect("paused: dimm 2 at 79 °C")
    go.set()
    session.expect("\x1b[2mHm.\x1b[0m\n\nHello\n")
    session.expect("2 tokens, 98.1 tokens/s")
    assert session.finish() == 0


def test_an_answer_cannot_steer_the_terminal(on_terminal, daemon) -> None:
    daemon.script = ["a\x1b]0;title\x07b\x9bc"]
    session = on_terminal("run", "Hi")
    session.expect("a␛]0;title␇b\ufffdc")
    assert session.finish() == 0
