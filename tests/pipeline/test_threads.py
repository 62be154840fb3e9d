"""Never more threads than CPUs we may run on, and one a core where two would share it."""

from __future__ import annotations

from pathlib import Path

import pytest

from optaned.pipeline.threads import affinity, threads_for


def topology(root: Path, siblings: dict[int, str]) -> Path:
    for cpu, text in siblings.items():
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("setting", "allowed", "threads"),
    [("auto", {0, 1, 2, 3}, 2), ("auto", {0, 1}, 2), ("auto", {1, 3}, 1), (3, {0, 1, 2, 3}, 3), (64, {0, 1}, 2)],
)
def test_threads_follow_cores_and_the_mask(tmp_path: Path, setting: int | str, allowed: set[int], threads: int) -> None:
    root = topology(tmp_path, {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    assert threads_for(setting, allowed, sysroot=root) == threads


def test_without_a_topology_every_cpu_is_a_core(tmp_path: Path) -> None:
    assert threads_for("auto", {4, 5, 6}, sysroot=tmp_path) == 3


def test_this_process_may_run_somewhere() -> None:
    assert threads_for("auto", affinity()) >= 1
