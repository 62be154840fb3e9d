from __future__ import annotations

import threading


def said(daemon, turn: int) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in daemon.asked[turn]]


def test_a_conversation_remembers_its_turns_until_it_is_cleared(ctl, daemon) -> None:
    found = ctl("chat", stdin="one\n/system Be short.\ntwo\n/clear\nthree\n/exit\nnever\n")
    assert (found.code, found.out) == (0, "Hello there\n" * 3)
    assert said(daemon, 0) == [("user", "one")]
    assert said(daemon, 1) == [
        ("system", "Be short."), ("user", "one"), ("assistant", "Hello there"), ("user", "two"),
    ]  # fmt: skip
    assert said(daemon, 2) == [("system", "Be short."), ("user", "three")]
    assert len(daemon.asked) == 3


def test_a_message_of_several_lines_stands_in_triple_quotes(ctl, daemon) -> None:
    ctl("chat", stdin='"""one\n  two\nthree"""\n"""\nfour\n"""\n')
    assert [said(daemon, turn)[-1] for turn in (0, 1)] == [("user", "one\n  two\nthree"), ("user", "four")]


def test_help_and_unknown_commands_ask_nothing(ctl, daemon) -> None:
    found = ctl("chat", stdin="/help\n/frob\n\n")
    assert "/clear" in found.err
    assert "unknown command /frob" in found.err
    assert daemon.asked == []


def test_a_failed_question_is_forgotten_and_is_the_exit_code_of_a_script(ctl, daemon) -> None:
    daemon.refusal = (503, {"error": {"message": "tiny is loading (43%)", "code": "model_loading"}})
    found = ctl("chat", stdin="one\ntwo\n")
    assert found.code == 75
    assert found.err == "optanectl: tiny is loading (43%)\n" * 2
    assert said(daemon, 1) == [("user", "two")]


def test_ctrl_c_cancels_the_answer_only_and_ctrl_d_leaves(on_terminal, daemon) -> None:
    daemon.script = ["Hel", {"wait": threading.Event()}]
    session = on_terminal("chat")
    session.expect(">>> ")
    session.type("one\n")
    session.expect("Hel")
    session.type("\x03")
    session.expect("(cancelled)")
    session.expect(">>> ")
    assert daemon.left.wait(5)
    daemon.script = ["Hello"]
    session.type("two\n")
    session.expect("Hello\n")
    session.expect(">>> ")
    assert said(daemon, 1) == [("user", "one"), ("assistant", "Hel"), ("user", "two")]
    session.type("\x04")
    assert session.finish() == 0


def test_a_second_ctrl_c_at_the_prompt_leaves(on_terminal) -> None:
    session = on_terminal("chat")
    session.expect(">>> ")
    session.type("\x03")
    session.expect("Ctrl-C again")
    session.expect(">>> ")
    session.type("\x03")
    assert session.finish() == 130
