"""`optaned guard`: watch the temperatures, drive the fans and write the thermal word, in the foreground.

Knows neither the API nor a backend; nothing that it imports does.
"""

from __future__ import annotations

import logging
import os
import pwd
import signal
from pathlib import Path

import click

from optaned.cli.config_option import config_option
from optaned.config.open import find_config, open_guard_config
from optaned.errors import UnavailableError, UsageError
from optaned.guard.loop import Guard
from optaned.guard.plan import plan_guard
from optaned.system.notify import Notifier
from optaned.system.parent import OrphanError, die_with_parent
from optaned.system.paths import guard_word_path, state_dir

log = logging.getLogger("optaned.guard")


@click.command
@config_option
@click.option("--word", "word_path", type=click.Path(path_type=Path), help="Where to write the thermal word.")
@click.option("--service-user", help="Account whose server may hand over its engine (default: our own).")
@click.option("--parent", type=int, hidden=True, help="End with this process, which started us.")
def guard(config_file: Path | None, word_path: Path | None, service_user: str | None, parent: int | None) -> None:
    """Guard the temperatures: sensors, fans and the word that everything else goes by."""
    if parent is not None:
        _end_with(parent)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    resolved, host = open_guard_config(find_config(config_file))
    for warning in resolved.warnings:
        log.warning(warning)
    plan = plan_guard(
        resolved,
        host,
        word_path=word_path or guard_word_path(),
        state_dir=_guard_state_dir(),
        service_uid=_uid_of(service_user),
    )
    notifier = Notifier()
    try:
        Guard(plan, notifier).run()
    finally:
        notifier.close()


def _end_with(parent: int) -> None:
    try:
        # A polite signal: the fans are left at full. The engine gets a hard one at the same time.
        die_with_parent(parent, deadly=signal.SIGTERM)
    except OrphanError as error:
        raise UnavailableError(f"not guarding: {error}") from error


def _guard_state_dir() -> Path:
    # A unit's state directory is the guard's alone; by hand it is shared with the server.
    return state_dir() if os.environ.get("STATE_DIRECTORY") else state_dir() / "guard"


def _uid_of(account: str | None) -> int:
    if account is None:
        return os.geteuid()
    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        raise UsageError(f"--service-user: there is no account {account!r}") from None
