from __future__ import annotations

import datetime
import sys

import pytest

from optaned.api import ChatError
from optaned_chat.limits import MAX_TEXT_CHARS
from optaned_chat.sandbox import ChatTemplate, RefusedByTemplate, TemplateFault


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source, lambda: datetime.datetime(2026, 2, 3)).render(variables)


@pytest.mark.parametrize(
    "source, text",
    [
        ("{{ x | tojson }}", '{"a": "<é>"}'),
        ("{{ x | tojson(indent=1) }}", '{\n "a": "<é>"\n}'),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ strftime_now('%Y') }}", "2026"),
        ("{% generation %}said{% endgeneration %}", "said"),
        ("a\n  {% if true %}\nb\n  {% endif %}\n", "a\nb\n"),
        ("{{ 'a' ~ 1 ~ 'b' * 2 }}", "a1bb"),
        ("{{ '%s-%03d' | format('x', 7) }}{{ '{:>3}'.format(1) }}", "x-007  1"),
        ("{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "3"),
        ("{{ [1, 'b'] | join('-') }}{{ [{'a': 1}, {'a': 2}] | join(',', attribute='a') }}", "1-b1,2"),
        ("{{ 'aba' | replace('a', 'c') }}{{ 'aa'.replace('a', 'c', 1) }}{{ 'a\nb' | indent(2) }}", "cbccaa\n  b"),
        ("{{ ', '.join(['a', 'b']) }}{{ 'a\nb' | indent(1, true) }}", "a, b a\n b"),
        ("{% macro greet(n) %}hi {{ n }}{% endmacro %}{{ greet('you') }}", "hi you"),
    ],
)
def test_the_dialect_of_model_publishers_is_spoken(source: str, text: str) -> None:
    assert render(source, x={"a": "<é>"}) == text


def test_a_template_can_refuse() -> None:
    with pytest.raises(RefusedByTemplate, match="not like this"):
        render("{{ raise_exception('not like this') }}")


HOSTILE = {
    "loops without end": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a range that is too long": "{% for i in range(10**9) %}{% endfor %}",
    "doubling with ~": "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "doubling with +": "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "doubling a block": "{% set n = namespace(s='ab') %}{% for i in range(60) %}"
    "{% set t %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = t %}{% endfor %}",
    "repetition": "{{ 'a' * 10**10 }}",
    "repetition of a list": "{{ [1] * 10**10 }}",
    "power": "{{ 10 ** 10 ** 10 ** 10 }}",
    "padding": "{{ 'a'.ljust(10**10) }}",
    "the center filter": "{{ 'a' | center(10**10) }}",
    "the indent filter": "{{ 'a\nb' | indent(10**10) }}",
    "a wide % format": "{{ '%9999999999d' % 1 }}",
    "a wide format filter": "{{ '%9999999999d' | format(1) }}",
    "a wide format method": "{{ '{:9999999999}'.format(1) }}",
    "many indented lines": "{{ ('a\n' * 100000) | indent(100000) }}",
    "many wide tabs": "{{ ('a\t' * 100000).expandtabs(100000) }}",
    "joining long texts": "{{ (['a' * 100000] * 100000) | join }}",
    "a long separator": "{{ ('a' * 100000).join(['b'] * 100000) }}",
    "replacing by a long text": "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "replacing by method": "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "lorem ipsum": "{{ lipsum(n=100000) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "output": "{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}",
    "python's insides": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "insides by filter": "{{ (''|attr('__class__')).mro() }}",
    "changing the request": "{{ x.update({'a': 1}) }}",
    "what is not there": "{{ nobody.home }}",
    "a failing filter": "{{ {} | first | tojson }}",
    "no include": "{% include 'etc' %}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_costs_one_refusal(source: str) -> None:
    before = sys.gettrace()
    with pytest.raises(TemplateFault):
        render(source, x={})
    assert sys.gettrace() is before


def test_a_long_conversation_stays_within_the_limits() -> None:
    messages = [{"role": "user", "content": "words " * 200} for _ in range(2000)]
    text = render("{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ m.content }}{% endfor %}", messages=messages)
    assert 2_000_000 < len(text) < MAX_TEXT_CHARS


def test_a_fault_while_rendering_reaches_the_client_as_a_chat_error(speak) -> None:
    with pytest.raises(ChatError, match="cannot render this conversation: it asks for more than"):
        speak(template=HOSTILE["loops without end"]).text(("user", "Hi"))
