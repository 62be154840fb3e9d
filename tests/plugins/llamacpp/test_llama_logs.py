"""The library's log becomes ours: right levels, whole lines, and the last errors for whoever asks."""

from __future__ import annotations

import logging

import pytest

from optaned_llamacpp.logs import LogSink

NAME = "optaned.llamacpp.test"


@pytest.fixture
def sink(caplog: pytest.LogCaptureFixture) -> LogSink:
    caplog.set_level(logging.DEBUG, logger=NAME)
    return LogSink(logging.getLogger(NAME))


def test_chatter_is_debug_and_faults_keep_their_level(sink: LogSink, caplog: pytest.LogCaptureFixture) -> None:
    for level, text in ((1, b"d\n"), (2, b"i\n"), (3, b"w\n"), (4, b"e\n"), (9, b"new\n")):
        sink.feed(level, text)
    levels = {record.message: record.levelname for record in caplog.records}
    assert levels == {"d": "DEBUG", "i": "DEBUG", "w": "WARNING", "e": "ERROR", "new": "WARNING"}


def test_pieces_become_one_line_of_the_first_pieces_level(sink: LogSink, caplog: pytest.LogCaptureFixture) -> None:
    sink.feed(4, b"cannot ")
    sink.feed(5, b"load ")
    sink.feed(5, b"it\nand\n")
    assert [(r.levelname, r.message) for r in caplog.records] == [("ERROR", "cannot load it"), ("ERROR", "and")]


def test_a_new_record_ends_an_unfinished_line(sink: LogSink, caplog: pytest.LogCaptureFixture) -> None:
    sink.feed(2, b"....")
    sink.feed(3, b"next\n")
    assert [record.message for record in caplog.records] == ["....", "next"]


def test_bytes_that_are_no_text_are_shown_and_never_raise(sink: LogSink, caplog: pytest.LogCaptureFixture) -> None:
    sink.feed(4, b"token \xff\xfe\n")
    assert caplog.records[0].message == "token \ufffd\ufffd"


def test_a_line_without_end_does_not_grow_for_ever(sink: LogSink, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(200):
        sink.feed(5, b"." * 100)
    assert caplog.records


def test_a_listener_hears_warnings_and_errors_of_its_time_only(sink: LogSink) -> None:
    sink.feed(4, b"before\n")
    with sink.listen() as outer, sink.listen() as inner:
        sink.feed(2, b"chatter\n")
        sink.feed(3, b"odd\n")
        sink.feed(4, b"broken")
    assert list(inner) == ["odd", "broken"]
    sink.feed(4, b"after\n")
    assert list(outer) == ["odd", "broken"]


def test_the_recent_errors_are_told_once(sink: LogSink) -> None:
    sink.feed(4, b"first\nsecond\n")
    assert sink.recent() == ("first", "second")
    assert sink.recent() == ()
