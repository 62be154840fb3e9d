"""Keep a plugin's exceptions where they belong: counted, logged on the edge, never passed on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_log = logging.getLogger(__name__)


def one_line(text: str) -> str:
    """Return a text with its line breaks and runs of blanks made single blanks."""
    return " ".join(text.split())


class Call:
    """One call's result; `done` says whether there is one."""

    def __init__(self) -> None:
        self.done = False
        self.result: Any = None


class Calls:
    """The failures of one host's plugins. A hook's first failure is logged with its traceback, then its recovery."""

    def __init__(self) -> None:
        self._total: Counter[str] = Counter()
        self._in_a_row: Counter[tuple[str, str]] = Counter()

    def failures(self, plugin: str) -> int:
        """Return how often a plugin's hooks failed so far."""
        return self._total[plugin]

    @contextmanager
    def isolate(self, plugin: str, hook: str, *, pass_on: type[Exception] | tuple[()] = ()) -> Iterator[Call]:
        """Run a call whose exceptions cost only its plugin; those of type `pass_on` leave."""
        call = Call()
        try:
            yield call
        except KeyboardInterrupt:
            raise
        except pass_on:
            raise
        except BaseException as error:  # noqa: BLE001  a stranger's hook may raise anything; it is counted and logged
            self.fail(plugin, hook, one_line(f"raised {type(error).__name__}: {error}"), error)
            return
        call.done = True
        self._recover(plugin, hook)

    def fail(self, plugin: str, hook: str, why: str, error: BaseException | None = None) -> None:
        """Count a failure; log it unless the call before failed too."""
        self._total[plugin] += 1
        self._in_a_row[plugin, hook] += 1
        if self._in_a_row[plugin, hook] == 1:
            _log.error("plugin %s: %s %s", plugin, hook, why, exc_info=error)

    def _recover(self, plugin: str, hook: str) -> None:
        failures = self._in_a_row.pop((plugin, hook), 0)
        if failures:
            _log.info("plugin %s: %s works again after %d failures", plugin, hook, failures)
