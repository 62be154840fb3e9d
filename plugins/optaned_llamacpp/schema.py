"""From a JSON schema to a GBNF grammar. Knows neither tokens nor the library."""

from __future__ import annotations
from collections.abc import Mapping
from typing import Any


def schema_to_gbnf(schema: Mapping[str, Any]) -> str:
    return 'root ::= "{" "}"'
