"""A mixture of experts on a real daemon with the real library: promoted, moved by hand, killed, and back from saved heat."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from optaned.residency import block
from optaned.testing.daemon import Daemon, daemon, eventually
from optaned.testing.gguf import build_moe

pytestmark = pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="needs the llama extra")

EXPERTS, LAYERS = 32, 4
EXPERT_BYTES = 3 * 256 * 512 * 2

# A byte-addressable home that any folder may be: what PMem is, without PMem.
SHELF = """
from __future__ import annotations
from pathlib import Path
from typing import Annotated
from pydantic import Field
from optaned.api import Driver, Options, TierInfo, TierKind, hookimpl
OPTANED_API = (1, 0)


class ShelfOptions(Options):
    mount: Annotated[Path, Field(strict=False)]


class Shelf:
    def __init__(self, name, options, env):
        self.name, self.options = name, options

    def probe(self):
        return TierInfo(self.name, "shelf", TierKind.BYTE, 1 << 30, 0, mount=self.options.mount)

    def close(self):
        pass


@hookimpl
def optaned_tiers():
    return [Driver("shelf", ShelfOptions, Shelf)]
"""

CONFIG = """
[models.m]
files = ["{folder}/home/m.gguf"]
context = 512
[tiers.dram0]
driver = "memory"
budget = "20MiB"
[tiers.home]
driver = "{home}"
mount = "{folder}/home"
[placement]
policy = "{policy}"
promote_to = ["dram0"]
[engine]
threads = 1
slots = 2
[plugins]
path = "{folder}/plugins"
"""

needs_store = pytest.mark.skipif(block.refusal() is not None, reason=str(block.refusal()))
HOMES = [pytest.param("shelf", id="read in place"), pytest.param("file", id="on a disk", marks=needs_store)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plugins = tmp_path / "plugins"
    plugins.mkdir(mode=0o755)
    (plugins / "shelf.py").write_text(textwrap.dedent(SHELF))
    (plugins / "shelf.py").chmod(0o644)
    (tmp_path / "home").mkdir()
    build_moe(tmp_path / "home" / "m.gguf", experts=EXPERTS, used=4, layers=LAYERS, width=256, seed=3)
    return tmp_path


def config(folder: Path, home: str, policy: str = "heat") -> str:
    return CONFIG.format(folder=folder, home=home, policy=policy)


def answer(running: Daemon, tokens: int = 80) -> str:
    body = {"prompt": "hello world this is", "max_tokens": tokens, "temperature": 0}
    status, reply = running.request("POST", "/v1/completions", body)
    assert status == 200, reply
    return str(reply["choices"][0]["text"])


def fast(running: Daemon) -> dict[str, Any]:
    told = running.get("/tiers")
    (found,) = (tier for tier in told["tiers"] if tier["name"] == "dram0")
    return {**found, "copied": told["smaps_bytes"], "moving": told["moving"]}


def resident_is_at_least(running: Daemon, experts: int) -> bool:
    return bool(fast(running)["experts"] >= experts)


@pytest.mark.parametrize("home", HOMES)
def test_bytes_move_by_heat_and_by_hand_and_no_answer_changes(folder: Path, home: str) -> None:
    with daemon(folder, config(folder, home, "home")) as running:
        told = answer(running)
        assert running.get("/tiers")["tiers"][1]["experts"] == LAYERS * EXPERTS
        refused = running.request("POST", "/tiers/move", {"do": "promote", "layer": 0})
        assert (refused[0], refused[1]["error"]["code"]) == (409, "move_refused")
    with daemon(folder, config(folder, home)) as running:
        begun = fast(running)
        assert begun["trunk_bytes"] > 1_900_000, "the trunk is there before the first answer"
        assert answer(running) == told
        eventually(lambda: resident_is_at_least(running, 10), what="experts move in")
        by_heat = fast(running)
        assert by_heat["trunk_bytes"] + by_heat["expert_bytes"] <= by_heat["budget_bytes"]
        assert answer(running) == told
        _, reply = running.request("POST", "/tiers/move", {"do": "demote", "layer": 1})
        assert reply["detail"].startswith("demoting ")
        eventually(lambda: fast(running)["demoted_bytes_total"] > by_heat["demoted_bytes_total"], what="a demotion")
        assert answer(running) == told
        assert "Traceback" not in running.log


@pytest.mark.parametrize("home", HOMES)
def test_a_killed_engine_comes_back_with_its_hot_experts_resident(folder: Path, home: str) -> None:
    with daemon(folder, config(folder, home)) as running:
        told = answer(running)
        heat = folder / "state" / "heat"
        eventually(lambda: list(heat.rglob("*.heat")), what="heat is saved once the router rests")
        pid = running.get("/ready")["engine_pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: running.get("/ready")["engine_pid"] not in (None, pid), what="another engine")
        eventually(running.is_ready)
        assert fast(running)["expert_bytes"] >= 10 * EXPERT_BYTES, "before the first answer"
        assert answer(running) == told


def test_a_trace_of_the_real_router_is_recorded_token_by_token(folder: Path, tmp_path: Path) -> None:
    with daemon(folder, config(folder, "shelf")) as running:
        command = [sys.executable, "-m", "optaned.cli.optanectl", "--host", str(running.socket), "trace", "record"]
        with subprocess.Popen([*command, str(tmp_path / "t"), "--tokens", "30"], stderr=subprocess.PIPE) as recording:
            eventually(lambda: (tmp_path / "t").exists() and (tmp_path / "t").read_bytes(), what="the recording begins")
            answer(running)
            assert recording.wait(30) == 0
    first, *tokens = map(json.loads, (tmp_path / "t").read_text().splitlines())
    assert (first["layers"], first["experts"], first["experts_used"]) == ([0, 1, 2, 3], EXPERTS, 4)
    assert len(tokens) == 30
    assert all([layer for layer, _ in token["choices"]] == first["layers"] for token in tokens)
    assert all(len(set(experts)) == 4 for token in tokens for _, experts in token["choices"])


def test_heat_of_another_model_is_refused_before_anything_moves(folder: Path) -> None:
    with daemon(folder, config(folder, "shelf")) as running:
        answer(running)
        (saved,) = eventually(lambda: list((folder / "state" / "heat").rglob("*.heat")), what="saved heat")
    (folder / "home" / "m.gguf").unlink()
    build_moe(folder / "home" / "m.gguf", experts=EXPERTS, used=4, layers=LAYERS, width=256, seed=4)
    command = [sys.executable, "-m", "optaned.cli.optaned", "plan", "--config", str(folder / "optaned.toml"), "--json"]
    environment = {**os.environ, "OPTANED_STATE_DIR": str(folder / "state")}
    plan = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    other = folder / "state" / "heat" / json.loads(plan.stdout)["index"]["digest"] / saved.name
    other.parent.mkdir()
    other.write_bytes(saved.read_bytes())
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert refused.returncode == 78
    assert len(refused.stderr.splitlines()) == 1
    assert "belongs to the model with digest" in refused.stderr
