"""`optaned demo`: a daemon of its own, one question, what the guard says, and everything ended again.

Knows the two programs and a temporary folder; asks and answers as a user would, over the socket.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import IO

import click

from optaned.cli.config_option import config_option
from optaned.config.open import find_config, open_config

_QUESTION = "In one sentence: what is the sea?"
_STOP_WITHIN_S = 10.0
# Of these a Python program dies where it stands; the daemon and its folder would be left behind.
_DEADLY = (signal.SIGTERM, signal.SIGHUP)


@click.command
@config_option
@click.option("--prompt", default=_QUESTION, show_default=True, help="What to ask.")
def demo(config_file: Path | None, prompt: str) -> int:
    """Start a daemon, ask it one question, show what it did, stop it."""
    config = find_config(config_file)
    open_config(config)  # what is wrong with it is told before a daemon fails on it
    for deadly in _DEADLY:
        signal.signal(deadly, _leave)
    with tempfile.TemporaryDirectory(prefix="optaned-demo-") as folder:
        environment = {**os.environ, "OPTANED_RUNTIME_DIR": folder, "OPTANED_STATE_DIR": f"{folder}/state"}
        environment["OPTANED_HOST"] = f"unix://{folder}/optaned.sock"
        log = Path(folder, "daemon.log")
        with log.open("wb") as stderr:
            daemon = _program("optaned.cli.optaned", "serve", "--config", str(config), env=environment, log=stderr)
        try:
            code = _talk(environment, prompt)
        finally:
            ended = _stop(daemon)
        if code or ended:
            click.echo(log.read_text(errors="replace").rstrip(), err=True)
    click.echo(f"the daemon ended with exit code {ended}")
    return code or ended


def _leave(signum: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def _talk(environment: dict[str, str], prompt: str) -> int:
    """Wait for the model, ask, and show the state; return the first exit code that is not 0."""
    question = ("run", "--verbose", "--temperature", "0", "--max-tokens", "80", prompt)
    for said, arguments in (
        ("starting the daemon and loading the model ...", ("status", "--wait", "--json")),
        (f"> {prompt}", question),
        ("", ("status",)),
    ):
        click.echo(said)
        out = subprocess.DEVNULL if "--json" in arguments else None
        code = _program("optaned.cli.optanectl", *arguments, env=environment, out=out).wait()
        if code:
            return code
    return 0


def _program(
    module: str, *arguments: str, env: dict[str, str], out: int | None = None, log: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    sys.stdout.flush()
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=log)


def _stop(daemon: subprocess.Popen[bytes]) -> int:
    daemon.send_signal(signal.SIGTERM)
    try:
        return daemon.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        return daemon.wait()
