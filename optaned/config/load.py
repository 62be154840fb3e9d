"""Read optaned.toml and check it against the schema, collecting every fault. Knows no driver and opens nothing else."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import tomli
from pydantic import BaseModel, ValidationError

from optaned.config.environment import overrides
from optaned.config.explain import Fault, faults_of
from optaned.config.schema import Config
from optaned.errors import ConfigError, MissingFileError

M = TypeVar("M", bound=BaseModel)

_QUOTED = r"'([^']*)'"
_KEY = re.compile(rf"\((?:{_QUOTED},? ?)+\)")  # how tomli writes the name of a table: ('models', 'a')


@dataclass(frozen=True, slots=True)
class Draft:
    """A configuration as it was read: `raw` is the TOML with the environment's values in it.

    `config` is what is left of it without the faulty keys, so that names in it can still be looked up and all faults be
    told at once; it may be used only when `faults` is empty. `environment` maps key paths to variables.
    """

    file: Path
    raw: Mapping[str, Any]
    config: Config
    faults: tuple[Fault, ...] = ()
    environment: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def check(self) -> Config:
        """Return the configuration. Raises ConfigError with one line for each fault."""
        if self.faults:
            raise ConfigError(*lines(self.faults, self.file))
        return self.config


def load(file: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration in a file. Raises MissingFileError, or ConfigError with all faults, one a line."""
    return read_draft(file, environ).check()


def read_draft(file: Path, environ: Mapping[str, str] = os.environ) -> Draft:
    """Return what a file says. Raises MissingFileError, and ConfigError only where there is no reading on."""
    raw = read_toml(file)
    return draft_of(raw, file=file, environ=environ)


def draft_of(raw: Mapping[str, Any], *, file: Path, environ: Mapping[str, str]) -> Draft:
    """Return the draft of tables that were read already."""
    merged = copy.deepcopy(dict(raw))
    origins, strays = overrides(environ, merged)
    config, faults = _validate(merged)
    named = [Fault(f.path, f.text, _source(f, origins)) for f in faults]
    return Draft(file, merged, config, (*strays, *named), origins)


def read_toml(file: Path) -> dict[str, Any]:
    """Return a file's tables. Raises MissingFileError, or ConfigError naming the line."""
    try:
        return tomli.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingFileError(f"{file}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: byte {error.start}: not UTF-8; save the file as UTF-8") from None
    except tomli.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        where = f"{place.rstrip(')')}: " if place else ""
        words = _KEY.sub(lambda key: f"[{'.'.join(re.findall(_QUOTED, key[0]))}]", f"{reason[:1].lower()}{reason[1:]}")
        raise ConfigError(f"{file}: {where}not valid TOML: {words}") from None


def validate_table(model: type[M], table: Mapping[str, Any]) -> M:
    """Return a TOML table as a record. Raises pydantic's ValidationError.

    By way of JSON: TOML has the same lists and texts, and a strict model takes them there for tuples, paths and enums.
    """
    return model.model_validate_json(json.dumps(table, default=str))


def lines(faults: tuple[Fault, ...] | list[Fault], file: Path) -> list[str]:
    """Return the faults' lines in order of their keys, each once."""
    ordered = sorted(faults, key=lambda f: [(isinstance(p, int), str(p)) for p in f.path])
    return list(dict.fromkeys(f.line(str(file)) for f in ordered))


def _validate(raw: Mapping[str, Any]) -> tuple[Config, list[Fault]]:
    """Return the valid rest of a configuration and its faults: take out what is wrong until the rest fits."""
    faults: list[Fault] = []
    rest = copy.deepcopy(dict(raw))
    while True:
        try:
            return validate_table(Config, rest), faults
        except ValidationError as error:
            found = faults_of(error, Config)
            faults += [f for f in found if not _follows(f, faults)]
            taken_out = [_take_out(rest, f.path) for f in found]
            if not any(taken_out):
                return Config(), faults


def _follows(fault: Fault, earlier: list[Fault]) -> bool:
    """Say whether a fault is about a key that was taken out: that it is missing now, or, in its table's, its default."""
    return any(e.path == fault.path for e in earlier) or any(
        e.path[:-1] == fault.path and str(e.path[-1]) in fault.text for e in earlier if e.path
    )


def _take_out(tables: dict[str, Any], path: tuple[str | int, ...]) -> bool:
    """Delete what is at `path`; for a missing key its table, for a part of a list the list. False when it is gone."""
    holder, key, where = tables, "", tables
    for place, part in enumerate(path, start=1):
        if not isinstance(where, dict):
            break
        if part not in where:
            if place < len(path):
                return False
            break
        holder, key, where = where, str(part), where[part]
    return holder.pop(key, None) is not None


def _source(fault: Fault, origins: Mapping[tuple[str, ...], str]) -> str:
    variable = next((v for path, v in origins.items() if fault.path[: len(path)] == path), None)
    return f"environment {variable}" if variable else ""
