"""The Jinja environment that chat templates of GGUF files expect, inside a sandbox with limits. Knows no message.

The dialect is the one that model publishers write for: blocks trimmed, loop controls, `tojson` that leaves HTML and
Unicode alone, `strftime_now`, `raise_exception`, `{% generation %}`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import Environment, TemplateError, TemplateSyntaxError, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.filters import do_format, do_indent, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from optaned_chat import limits

FILENAME = "<chat template>"
_WIDTH_FILTERS = ("batch", "center", "slice", "wordwrap")


class RefusedByTemplate(Exception):  # noqa: N818  the template's own word: raise_exception
    """The template called `raise_exception`; the text is its author's."""


class TemplateFault(Exception):  # noqa: N818  read as a noun: what is wrong with the template
    """The template cannot be compiled, failed while rendering, or went over a limit."""


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012  the name and kind are Jinja's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _CheckedConcat(CodeGenerator):
    """Compiles `a ~ b` into a call that looks at the length; Jinja's own cannot be intercepted."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  as in Jinja
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Sandbox(ImmutableSandboxedEnvironment):
    code_generator_class = _CheckedConcat
    concat = staticmethod(limits.join)
    intercepted_binops = frozenset(limits.CHECKS)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        limits.CHECKS[operator](left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapper = super().wrap_str_format(value)
        if wrapper is not None:
            limits.check_modulo(value.__self__, None)
        return wrapper

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  as in Jinja
        if isinstance(getattr(__obj, "__self__", None), str):
            limits.check_method(__obj, args)
            __obj = limits.bounded(__obj)
        return super().call(__context, __obj, *args, **kwargs)


class ChatTemplate:
    """One compiled template. Raises TemplateFault when `source` is no Jinja. `now` is the local wall time."""

    def __init__(self, source: str, now: Callable[[], datetime.datetime] = datetime.datetime.now) -> None:
        environment = _environment(now)
        try:
            code = environment.compile(source, filename=FILENAME)
            self._template = environment.template_class.from_code(environment, code, environment.make_globals(None))
        except TemplateSyntaxError as error:
            raise TemplateFault(f"line {error.lineno}: {error.message}") from error
        except Exception as error:  # foreign code: whatever its folding of constants raises is its fault
            raise TemplateFault(f"{type(error).__name__}: {error}") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return the text. Raises RefusedByTemplate or TemplateFault, nothing else."""
        try:
            with limits.step_limit(FILENAME):
                return self._template.render(variables)
        except RefusedByTemplate:
            raise
        except limits.LimitError as error:
            raise TemplateFault(f"it asks for {error}") from error
        except (TemplateError, RecursionError) as error:
            raise TemplateFault(str(error) or type(error).__name__) from error
        except Exception as error:  # foreign code may raise anything; it becomes one typed error
            raise TemplateFault(f"{type(error).__name__}: {error}") from error


def _environment(now: Callable[[], datetime.datetime]) -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag])
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": lambda form: now().strftime(str(form))}
    environment.filters |= {name: limits.bounded(environment.filters[name]) for name in _WIDTH_FILTERS}
    environment.filters["tojson"] = limits.bounded(_tojson)
    environment.filters |= {"format": _format, "indent": _indent, "join": _join, "replace": _replace}
    del environment.globals["lipsum"]  # a joke of Jinja's that takes minutes when it is asked to
    return environment


def _raise_exception(message: object) -> None:
    raise RefusedByTemplate(str(message))


def _format(form: object, *values: Any, **named: Any) -> str:
    limits.check_modulo(str(form), None)
    return str(do_format(str(form), *values, **named))


def _indent(text: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002
    limits.check_lines(str(text), width)
    return do_indent(str(text), width, first, blank)


@pass_environment
def _join(environment: Environment, parts: Iterable[Any], separator: object = "", attribute: str | None = None) -> str:
    chosen = parts if attribute is None else map(make_attrgetter(environment, attribute), parts)
    texts = [str(part) for part in chosen]
    limits.check_join(str(separator), texts)
    return str(separator).join(texts)


def _replace(text: object, old: object, new: object, count: int | None = None) -> str:
    limits.check_replace(str(text), str(old), str(new))
    return str(text).replace(str(old), str(new), -1 if count is None else count)


def _tojson(value: Any, *, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:  # fmt: skip
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
