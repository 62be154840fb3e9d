"""Real daemons: server, engine, tokenizer and guard as processes, on the echo backend unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from optaned.testing.daemon import Daemon, daemon

ECHO = """
[models.echo]
context = 8192
[models.other]
context = 2048
[engine]
backend = "echo"
slots = {slots}
[engine.echo]
token_delay_s = {token_delay_s}
prefill_delay_s_per_token = {prefill_delay_s_per_token}
[server]
ping_s = 0.2
[sensors.dimms]
driver = "sim"
points = ["dimm2"]
file = "{folder}/celsius"
[thermal]
tick_s = 0.1
"""


def echo_config(
    folder: Path, *, slots: int = 4, token_delay_s: float = 0.0, prefill_delay_s_per_token: float = 0.0
) -> str:
    """Return a configuration whose DIMM is as hot as `folder/celsius` says."""
    (folder / "celsius").write_text("40\n")
    table = ECHO.format(
        folder=folder,
        slots=slots,
        token_delay_s=token_delay_s,
        prefill_delay_s_per_token=prefill_delay_s_per_token,
    )
    return 'default_model = "echo"\n' + table


@pytest.fixture(scope="session", name="echo_config")
def _echo_config() -> Callable[..., str]:
    """The function above, for tests that start a daemon of their own."""
    return echo_config


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A quick echo daemon that the tests of a module share; it must be as good as new after each."""
    folder = tmp_path_factory.mktemp("echo")
    with daemon(folder, echo_config(folder)) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """An echo daemon that takes 20 ms a token and 2 ms a prompt token, so that things can happen meanwhile."""
    folder = tmp_path_factory.mktemp("slow")
    config = echo_config(folder, token_delay_s=0.02, prefill_delay_s_per_token=0.002)
    with daemon(folder, config) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log
