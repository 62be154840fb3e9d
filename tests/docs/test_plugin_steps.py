"""The package that docs/write-a-plugin.md builds is the one in the fixtures, line for line, and it works once installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from optaned.testing.gguf import build_moe

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tests" / "fixtures" / "lent"
PAGE = (ROOT / "docs" / "write-a-plugin.md").read_text()
FILES = [
    "optaned_lent/tier.py",
    "optaned_lent/policy.py",
    "optaned_lent/__init__.py",
    "pyproject.toml",
    "tests/test_lent.py",
]


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_the_steps_together_are_the_package() -> None:
    steps = PAGE.partition("## A tier, step by step")[2].partition("Then it is used like any other:")[0]
    told = [line for block in re.findall(r"```(?:python|toml)\n(.*?)```", steps, re.DOTALL) for line in lines(block)]
    assert told == [line for name in FILES for line in lines((PACKAGE / name).read_text())]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lent")
    shutil.copytree(PACKAGE, folder / "source")  # a build leaves files beside its source
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--target", str(folder / "site"), str(folder / "source")]
    subprocess.run(command, check=True, timeout=100)
    return folder / "site"


def test_its_own_tests_pass_against_the_installed_package(site: Path) -> None:
    tests = site.parent / "source" / "tests"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "-p",
        "no:cacheprovider",
        f"--rootdir={tests}",
        str(tests),
    ]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(site)}, cwd=site, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
    assert re.search(r"\b1\d passed", ended.stdout)


def test_a_model_is_planned_with_its_tier_and_its_policy(site: Path, tmp_path: Path) -> None:
    table = next(text for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "[placement.favourites]" in text)
    build_moe(tmp_path / "m.gguf", layers=4, experts=8)
    (tmp_path / "lent").write_text(str(1 << 20))
    config = f"""
        [models.m]
        files = ["m.gguf"]
        context = 128
        [tiers.disk]
        driver = "file"
        mount = "{tmp_path}"
        {table.replace("/run/lender/bytes", str(tmp_path / "lent"))}
    """
    (tmp_path / "optaned.toml").write_text(config)
    command = [
        sys.executable,
        "-m",
        "optaned.cli.optaned",
        "plan",
        "--config",
        str(tmp_path / "optaned.toml"),
        "--json",
    ]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    disk, lent = json.loads(ended.stdout)["tiers"]
    assert lent["driver"] == "lent"
    assert lent["expert_bytes"] > 0
    assert lent["trunk_bytes"] > disk["trunk_bytes"]
    assert lent["claimed_bytes"] <= 1 << 20
