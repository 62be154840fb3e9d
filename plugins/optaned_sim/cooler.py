"""The simulated fan: it does as it is told and says so. Knows no temperature."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from optaned.api import Driven, Env, Options

_FULL_RPM = 6000.0


class SimCoolerOptions(Options):
    """`[cooling.NAME] driver = "sim"`."""

    file: Path | None = Field(default=None, strict=False)
    """A file to write the demand to (0 to 1) and read it back from; without it the fan lives in memory."""

    @field_validator("file")
    @classmethod
    def _is_absolute(cls, file: Path | None) -> Path | None:
        if file is not None and not file.is_absolute():
            raise ValueError(f'"{file}" must be an absolute path')
        return file


class SimCooler:
    """A fan whose speed is its demand. It starts at full, as a real one that nobody has taken over."""

    def __init__(self, options: SimCoolerOptions, env: Env) -> None:
        self._file = None if options.file is None else env.path(options.file)
        self._demand = 1.0

    def drive(self, demand: float) -> Driven:
        """Set the demand (0 to 1) and return what was read back. Raises OSError when the file cannot be written."""
        if self._file is not None:
            self._file.write_text(f"{demand:.4f}\n", "ascii")
        self._demand = demand
        read_back = self._read_back()
        return Driven(demand, read_back, (_FULL_RPM * read_back,))

    def _read_back(self) -> float:
        if self._file is None:
            return self._demand
        try:
            return float(self._file.read_text("ascii"))
        except ValueError as error:
            raise OSError(f"{self._file}: no number") from error

    def release(self) -> None:
        self.drive(1.0)


def open_cooler(name: str, options: SimCoolerOptions, env: Env) -> SimCooler:  # noqa: ARG001  the contract of `open`
    """Return the fan of one `[cooling.NAME]` table."""
    return SimCooler(options, env)
