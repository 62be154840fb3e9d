"""A server with fakes behind it, and a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from optaned.testing.serving import Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[httpx2.Client]:
    transport = httpx2.HTTPTransport(uds=str(served.path))
    with httpx2.Client(transport=transport, base_url="http://optaned", timeout=20) as opened:
        yield opened
