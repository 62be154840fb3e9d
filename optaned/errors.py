"""Every expected error of the project, each with the exit code that a shell or systemd sees.

Knows sysexits.h and nothing else. An `OptanedError` ends a command with its lines on stderr and its `exit_code`; any other
exception is a bug and ends with a traceback and exit code 70.
"""

from __future__ import annotations

BUG_EXIT_CODE = 70


class OptanedError(Exception):
    """An error that a user can act on: one fault a line, each naming what is wrong and the next step."""

    exit_code = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class UsageError(OptanedError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 64


class ModelFileError(OptanedError):
    """A GGUF shard is truncated, corrupt or of a kind that cannot be served."""

    exit_code = 65


class MissingFileError(OptanedError):
    """A file that the configuration or the command line names is not there."""

    exit_code = 66


class UnavailableError(OptanedError):
    """Something that must be there to go on is not: a daemon, a library, a device."""

    exit_code = 69


class BusyError(OptanedError):
    """Another process owns what we need (the socket, a lock)."""

    exit_code = 75


class AccessError(OptanedError):
    """The user may not do this; the line names the group that may."""

    exit_code = 77


class ConfigError(OptanedError):
    """The configuration cannot be used; one line a fault: `file: key.path: what is wrong (did you mean …?)`."""

    exit_code = 78


class PluginError(ConfigError):
    """A plugin or driver that the configuration uses is missing, broken, ambiguous or refused."""
