"""Drivers that a frame names: their options validated, their surroundings made. Knows plugins only by declaration."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from pydantic import ValidationError

from optaned.errors import ConfigError
from optaned.hooks.drivers import Driver, Env


def env_of(driver: Driver) -> Env:
    """Return what a driver may take from its surroundings in a worker: a log, nothing else."""
    return Env(log=logging.getLogger(f"optaned.{driver.name}"))


def validated(driver: Driver, options: dict[str, Any], table: str) -> Any:
    """Return options as the driver's own model. Raises ConfigError, one line a fault, with `table` before the key.

    They crossed the socket as plain data, so that a list may stand for a tuple, as in JSON.
    """
    try:
        return driver.options.model_validate_json(msgspec.json.encode(options))
    except ValidationError as error:
        lines = [f"{table}.{'.'.join(map(str, fault['loc']))}: {fault['msg'].lower()}" for fault in error.errors()]
        raise ConfigError(*lines) from error
