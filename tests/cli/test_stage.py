"""`optaned stage`, as people type it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optaned.cli.stage import stage
from optaned.cli.stage_progress import Bars, Lines
from optaned.errors import BusyError, ConfigError, MissingFileError, OptanedError, UsageError
from optaned.pipeline.staging.plan import plan_staging
from optaned.pipeline.staging.sources import find_sources
from optaned.pipeline.staging.targets import folder_target
from optaned.testing.gguf import build_split

CONFIG = """
[models.m]
files = ["{folder}/pmem0/*.gguf", "{folder}/pmem1/*.gguf"]
[tiers.dram0]
driver = "memory"
[tiers.pmem0]
driver = "file"
mount = "{folder}/pmem0"
read_gbps = 29
[tiers.pmem1]
driver = "file"
mount = "{folder}/pmem1"
read_gbps = 29
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPTANED_RUNTIME_DIR", str(tmp_path / "run"))
    for name in ("from", "pmem0", "pmem1"):
        (tmp_path / name).mkdir()
    build_split(tmp_path / "from" / "m.gguf", shards=3, experts=8)
    (tmp_path / "optaned.toml").write_text(CONFIG.format(folder=tmp_path))
    return tmp_path


def run(folder: Path, *arguments: str) -> Result:
    config = str(folder / "optaned.toml")
    return CliRunner().invoke(stage, [str(folder / "from"), "--config", config, *arguments], catch_exceptions=False)


def refused(folder: Path, *arguments: str) -> str:
    with pytest.raises(OptanedError) as caught:
        run(folder, *arguments)
    return str(caught.value)


def test_a_dry_run_says_where_each_shard_goes_and_writes_nothing(folder: Path) -> None:
    header, *rows = run(folder, "--to", "pmem0", "--to", "pmem1", "--dry-run").output.splitlines()
    assert header.split() == ["file", "size", "to", "what", "path"]
    assert [row.split()[0] for row in rows] == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert {row.split()[3] for row in rows} == {"pmem0", "pmem1"}
    assert list((folder / "pmem0").iterdir()) == []


def test_a_dry_run_places_shards_that_are_not_there_yet(folder: Path) -> None:
    arguments = ["--to", str(folder / "pmem0"), "--to", str(folder / "pmem1"), "--size", "20MiB", "--dry-run", "--json"]
    shard = str(folder / "download" / "k-00001-of-00004.gguf")
    told = json.loads(CliRunner().invoke(stage, [shard, *arguments], catch_exceptions=False).output)
    assert [(f["doing"], f["size_bytes"]) for f in told["files"]] == [("wait", 5 << 20)] * 4
    assert {Path(f["path"]).parent.name for f in told["files"]} == {"pmem0", "pmem1"}


def test_staging_tells_of_each_shard_and_that_no_guard_watches(folder: Path) -> None:
    told = run(folder, "--to", "pmem0", "--to", "pmem1", "--verify")
    assert told.exit_code == 0
    assert "no guard is running" in told.output
    assert told.output.count(": copied, verified") == 3
    assert len(list(folder.glob("pmem?/m-*.gguf"))) == 3


def test_shards_that_wait_are_named_and_the_exit_code_says_try_again(folder: Path) -> None:
    os.truncate(folder / "from" / "m-00002-of-00003.gguf", 100)
    with pytest.raises(BusyError, match=r"m-00002-of-00003\.gguf: waits: 100 B are there; stage it again") as caught:
        run(folder, "--to", "pmem0")
    assert caught.value.exit_code == 75
    assert len(list((folder / "pmem0").glob("*.gguf"))) == 2


@pytest.mark.parametrize(
    ("arguments", "kind", "line"),
    [
        (["--to", "pmem7"], UsageError, "--to pmem7: no folder, and no tier of .*; declared: dram0, pmem0, pmem1"),
        (["--to", "dram0"], ConfigError, "tier dram0 .* holds no files"),
        (["--to", "/no/such/folder"], MissingFileError, "there is no folder /no/such/folder"),
        (["--to", "pmem0", "--to", "pmem0"], UsageError, "the same folder"),
        (["--to", "pmem0", "--json"], UsageError, "--json goes with --dry-run"),
    ],
)
def test_bad_input_is_one_line(folder: Path, arguments: list[str], kind: type[OptanedError], line: str) -> None:
    with pytest.raises(kind, match=line) as caught:
        run(folder, *arguments)
    assert len(caught.value.lines) == 1


def test_a_size_is_written_in_binary_units(folder: Path) -> None:
    told = CliRunner().invoke(stage, [str(folder), "--to", "x", "--size", "610GB"])
    assert told.exit_code == 2
    assert "did you mean" in told.output


def test_the_same_folder_under_two_names_is_one_too_many(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "pmem0")
    assert "the same folder" in refused(folder, "--to", "pmem0", "--to", str(folder / "link"))


def test_long_copies_say_how_far_they_are_now_and_then(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now_s = [0.0]
    lines = Lines(clock=lambda: now_s[0])
    (job, *_) = plan_staging(find_sources([folder / "from"]), [folder_target(folder / "pmem0")]).jobs
    lines.begun(job, "copy", 100)
    for _ in range(10):
        now_s[0] += 4
        lines.advanced(job, 10)
    lines.ended(job, "copied")
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()[1:]] == [
        "30%",
        "60%",
        "90%",
        "copied",
    ]


def test_bars_live_through_a_whole_staging(folder: Path) -> None:
    plan = plan_staging(find_sources([folder / "from"]), [folder_target(folder / "pmem0")])
    bars = Bars()
    for job in plan.jobs:
        bars.begun(job, "copy", job.size_bytes)
        bars.held(job.target, "77 °C")
        bars.held(job.target, None)
        bars.advanced(job, job.size_bytes)
        bars.ended(job, "copied")
    assert bars.progress.finished
