"""Grammars are judged here before the library sees them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.api import GrammarError
from optaned_llamacpp.gbnf import check_gbnf

GOOD = (
    'root ::= "yes" | "no"',
    'root ::= item ("," item)*\nitem ::= [a-z]+ # a comment\n',
    'root ::= (\n  "a" |\n  "b"\n){2,3} .?\r\n',
    'root ::= "\\"" [^"\\\\\\x00-\\x1F] "\\u00e9" "\\n"',
    "root ::= <[7]> !<[8]> <think>",
    'root ::= ""',
    'root ::= "a" root |',
    'root ::= x{0,2000}\nx ::= "a"',
    "root ::= (ws item)* ws\nws ::= [ \\t]*\nitem ::= [0-9]",
)


@pytest.mark.parametrize("grammar", GOOD)
def test_a_sound_grammar_passes(grammar: str) -> None:
    check_gbnf(grammar)


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("", "no rule named root"),
        ('start ::= "a"', "no rule named root"),
        ("root ::= other", "root uses other, which is not defined"),
        ('root = "a"', "line 1: expected ::="),
        ('root ::= "a', 'no closing "'),
        ("root ::= [a", "no closing ]"),
        ('root ::= ("a"', "expected )"),
        ('root ::= "a" )', "expected the end of the rule"),
        ('root ::= "a"\n\nother ::= *', "line 3: nothing before *"),
        ('root ::= "\\q"', "expected a known escape"),
        ('root ::= "a"{3,2}', "at least 3 and at most 2"),
        ('root ::= "a"{2001}', "more than 2000 repetitions"),
        ('root ::= (("a"{0,100}){100})', "nested repetitions"),
        ('root ::= "a"{,3}', "expected {n}"),
        ('root ::= root "a"', "root refers to itself before any character"),
        ('root ::= a\na ::= b "x"\nb ::= a', "refers to itself"),
        ('root ::= blank root "a" | "b"\nblank ::= space\nspace ::= " "?', "root refers to itself"),
        ("root ::= " + "(" * 65 + '"a"' + ")" * 65, "nested deeper than 64"),
        ('root ::= "\0"', "NUL"),
        ('root ::= "\ud800"', "surrogate"),
        ("root ::= " + '"a" ' * 200_000, "are more than"),
    ],
)
def test_a_fault_is_one_line_that_names_it(grammar: str, words: str) -> None:
    with pytest.raises(GrammarError) as raised:
        check_gbnf(grammar)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_chain_of_rules_longer_than_pythons_stack_is_no_fault() -> None:
    rules = [f"r{i} ::= r{i + 1}" for i in range(5000)]
    check_gbnf("\n".join(["root ::= r0", *rules, 'r5000 ::= "a"']))


@given(st.text(alphabet='root:=|()[]{}*+?."\\<>!,09a-z \n^#\r', max_size=60))
def test_any_text_is_accepted_or_refused_but_never_breaks_the_reader(text: str) -> None:
    with suppress(GrammarError):
        check_gbnf("root ::= " + text)
