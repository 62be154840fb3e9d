"""`optanectl`: talks to a running daemon over its socket, and to nothing else. Knows the verbs by name only.

Exit codes: 0 done · 1 the daemon refused or the answer broke off · 64 wrong usage · 69 no daemon · 70 a bug ·
75 busy or loading · 77 not allowed · 130 interrupted · 141 the reader of our output left.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import click

from optaned import __version__
from optaned.cli.ctl.lazy import LazyGroup
from optaned.cli.usage import usage_line
from optaned.errors import BUG_EXIT_CODE, OptanedError, UsageError

_CTL = "optaned.cli.ctl"
VERBS = {
    "run": (f"{_CTL}.run:command", "Ask once: stream the answer to a prompt or to what is piped in."),
    "chat": (f"{_CTL}.chat:command", "Talk with the model, turn by turn."),
    "status": (f"{_CTL}.status:command", "Show model, load, heat, slots and counters."),
    "models": (f"{_CTL}.models:command", "List the declared models."),
    "load": (f"{_CTL}.load:load", "Load a declared model."),
    "unload": (f"{_CTL}.load:unload", "Unload the model; the daemon stays up."),
    "slots": (f"{_CTL}.slots:command", "Show what each slot does."),
    "tiers": (f"{_CTL}.tiers:group", "Show what lies on which tier; move experts by hand."),
    "trace": (f"{_CTL}.trace:group", "Record which experts the router chooses."),
    "tokenize": (f"{_CTL}.tokenize:command", "Show the tokens of a text."),
}


class _Verbs(LazyGroup):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would make it 1, which says that the daemon refused
            raise click.exceptions.Exit(_reader_left()) from None


@click.group(cls=_Verbs, verbs=VERBS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", metavar="ADDRESS", help="unix:///path or a path; else $OPTANED_HOST, else the default socket.")
@click.version_option(__version__, prog_name="optanectl")
@click.pass_context
def group(context: click.Context, host: str | None) -> None:
    """Talk to a running optaned over its Unix socket."""
    context.obj = host


def main() -> None:
    """Run one verb and exit with a truthful code."""
    try:
        code = group.main(prog_name="optanectl", standalone_mode=False)
        sys.stdout.flush()
    except OptanedError as error:
        code = _complain(*error.lines, code=error.exit_code)
    except click.ClickException as error:
        click.echo(usage_line(error, "optanectl"), err=True)
        code = UsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        code = _reader_left()
    except Exception:  # noqa: BLE001  a bug: shown whole, with the exit code that says so
        traceback.print_exc()
        code = BUG_EXIT_CODE
    sys.exit(code)


def _reader_left() -> int:
    """Return the exit code of a broken pipe. Python flushes stdout once more at exit: give it somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _complain(*lines: str, code: int) -> int:
    for line in lines:
        click.echo(f"optanectl: {line}", err=True)
    return code


if __name__ == "__main__":
    main()
