"""`optaned`: picks the verb and turns every way out into a truthful exit code. Knows no verb from inside."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from optaned.cli.plugin_verbs import load_plugin_verb, plugin_verbs
from optaned.cli.usage import usage_line
from optaned.cli.verbs import VERBS, load_verb
from optaned.errors import BUG_EXIT_CODE, OptanedError, UsageError
from optaned.hooks.suggest import did_you_mean

INTERRUPTED_EXIT_CODE = 130  # as a shell says it: 128 + SIGINT
BROKEN_PIPE_EXIT_CODE = 141  # 128 + SIGPIPE


class Verbs(click.Group):
    """The verbs of the core, then those of plugins. Nothing is imported for a verb that was not asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return [*VERBS, *(name for name in plugin_verbs() if name not in VERBS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return load_verb(cmd_name) or load_plugin_verb(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise UsageError(f"optaned: no verb is named {name!r}{did_you_mean(name, VERBS)}; see: optaned --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl([*VERBS.items(), *((n, s) for n, s in plugin_verbs().items() if n not in VERBS)])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="optaned", message="%(prog)s %(version)s")
def optaned() -> None:
    """Serve language models larger than DRAM from tiers of memory, and keep the DIMMs cool."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run_command(optaned, argv))


def run_command(command: click.Command, argv: Sequence[str] | None = None) -> int:
    """Run a click command and return the exit code; expected errors are lines on stderr, bugs are tracebacks and 70."""
    return _coded(lambda: command.main(argv, prog_name=command.name, standalone_mode=False))


def _coded(run: Callable[[], Any]) -> int:
    try:
        result = run()
        sys.stdout.flush()
    except OptanedError as error:
        print(*error.lines, sep="\n", file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        print(usage_line(error, "optaned"), file=sys.stderr)
        return UsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # Python flushes stdout again at exit and would complain on stderr.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE_EXIT_CODE
    except Exception:  # noqa: BLE001  a bug: shown whole, with the exit code that says so
        traceback.print_exc()
        return BUG_EXIT_CODE
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    main()
