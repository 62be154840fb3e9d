"""The files in etc/ are fresh, complete and valid."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from optaned.config.load import draft_of
from optaned.config.open import open_config
from optaned.config.render import COMMAND, REFERENCE, SCHEMA, render_reference, write_references
from optaned.config.schema import Config

ETC = Path(__file__).parents[2] / "etc"


@pytest.mark.parametrize("name", [REFERENCE, SCHEMA])
def test_the_written_files_are_what_the_schema_says(tmp_path: Path, name: str) -> None:
    write_references(tmp_path)
    assert (ETC / name).read_text() == (tmp_path / name).read_text(), f"run: {COMMAND}"


def keys() -> list[tuple[str, str]]:
    """Return each key line of the reference with the header of its table."""
    found, table = [], ""
    for line in render_reference().splitlines():
        bare = line.removeprefix("#")
        if re.match(r"\[", bare):
            table = bare
        elif re.match(r"#?[a-z_]+ = ", line):
            found.append((table, bare))
    return found


@pytest.mark.parametrize(("table", "line"), keys(), ids=lambda part: part.split(" =")[0])
def test_each_commented_key_is_valid_when_it_is_set_alone(table: str, line: str) -> None:
    needs_driver = re.match(r"\[(tiers|sensors|cooling)\.", table) and not line.startswith("driver")
    text = "\n".join([table, 'driver = "x"' if needs_driver else "", line])
    raw: dict[str, Any] = tomllib.loads(text)
    assert draft_of(raw, file=Path("reference"), environ={}).faults == ()


def test_every_table_and_key_is_explained() -> None:
    lines = render_reference().splitlines()
    unexplained = [line for before, line in itertools.pairwise(lines) if "=" in line and before[:2] != "# "]
    assert [line for line in unexplained if re.match(r"#?[a-z_]+ = ", line)] == []
    assert all(field.description for field in Config.model_fields["thermal"].annotation.model_fields.values())  # type: ignore[union-attr]


@pytest.mark.parametrize("example", sorted((ETC / "examples").glob("*.toml")), ids=lambda path: path.stem)
def test_each_example_is_valid_with_the_drivers_that_exist(example: Path) -> None:
    resolved = open_config(example, {}, look_for_files=False).resolved
    assert resolved.warnings == ()
