"""The tier `memory` counts what the kernel counts: the machine's or a node's, within every control group around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from optaned.api import ConfigError, Env, TierInfo, TierKind, UnavailableError
from optaned_memory import MemoryOptions, MemoryTier, optaned_tiers

GIB = 1 << 30
MACHINE = {"/proc/meminfo": "MemTotal: 134217728 kB\nMemFree: 1024 kB\nMemAvailable: 104857600 kB\n"}  # 128 and 100 GiB
NODE1 = {
    "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 67108864 kB\nNode 0 MemFree: 67108864 kB\n",
    "/sys/devices/system/node/node1/meminfo": (
        "Node 1 MemTotal:       67108864 kB\n"  # 64 GiB
        "Node 1 MemFree:        10485760 kB\n"  # 10
        "Node 1 Active(file):   20971520 kB\n"  # 20
        "Node 1 Inactive(file): 10485760 kB\n"  # 10
        "Node 1 HugePages_Total: 0\n"
    ),
}


def probe(root: Path, files: dict[str, str], **options: Any) -> TierInfo:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return MemoryTier("dram0", MemoryOptions(**options), Env(sysroot=root)).probe()


def test_a_reserve_is_left_to_everything_else(tmp_path: Path) -> None:
    found = probe(tmp_path, MACHINE, reserve="48GiB")
    assert (found.capacity_bytes, found.free_bytes) == (128 * GIB, 80 * GIB)
    assert (found.kind, found.mount, found.numa_node) == (TierKind.BYTE, None, None)


def test_a_budget_is_what_may_be_used(tmp_path: Path) -> None:
    assert probe(tmp_path, MACHINE, budget="96GiB").free_bytes == 96 * GIB


def test_nothing_is_promised_that_the_kernel_does_not_have(tmp_path: Path) -> None:
    assert probe(tmp_path, MACHINE, budget="120GiB").free_bytes == 100 * GIB
    assert probe(tmp_path, MACHINE, reserve="1GiB").free_bytes == 100 * GIB


def test_without_either_a_tenth_stays_free(tmp_path: Path) -> None:
    idle = {"/proc/meminfo": "MemTotal: 104857600 kB\nMemAvailable: 104857600 kB\n"}
    assert probe(tmp_path, idle).free_bytes == 90 * GIB


def test_a_nodes_file_pages_count_as_free(tmp_path: Path) -> None:
    found = probe(tmp_path, MACHINE | NODE1, numa_node=1, reserve="4GiB")
    assert (found.capacity_bytes, found.free_bytes, found.numa_node) == (64 * GIB, 40 * GIB, 1)


def test_an_unknown_node_is_told_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no NUMA node 7; nodes of this machine: 0, 1"):
        probe(tmp_path, MACHINE | NODE1, numa_node=7)


@pytest.mark.parametrize("key", ["budget", "reserve"])
def test_more_than_there_is_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: 200 GiB is more than there is \(128 GiB, the machine's memory\)"):
        probe(tmp_path, MACHINE, **{key: "200GiB"})


def test_the_tightest_group_above_us_counts(tmp_path: Path) -> None:
    groups = {
        "/proc/self/cgroup": "0::/system.slice/optaned.service\n",
        "/sys/fs/cgroup/system.slice/optaned.service/memory.max": "max\n",
        "/sys/fs/cgroup/system.slice/memory.max": str(32 * GIB),
        "/sys/fs/cgroup/system.slice/memory.current": str(12 * GIB),
        "/sys/fs/cgroup/system.slice/memory.stat": f"anon 1\nactive_file {GIB}\ninactive_file {GIB}\n",
    }
    found = probe(tmp_path, MACHINE | groups, reserve="2GiB")
    assert (found.capacity_bytes, found.free_bytes) == (32 * GIB, 22 * GIB)
    with pytest.raises(ConfigError, match=r"the limit of control group /system\.slice"):
        probe(tmp_path, {}, budget="64GiB")


def test_version_1_limits_count_and_its_unlimited_is_none(tmp_path: Path) -> None:
    groups = {
        "/proc/self/cgroup": "5:cpu:/x\n4:memory:/box/inner\n0::/\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory/box/memory.limit_in_bytes": str(16 * GIB),
        "/sys/fs/cgroup/memory/box/memory.usage_in_bytes": str(8 * GIB),
        "/sys/fs/cgroup/memory/box/memory.stat": f"inactive_file 0\ntotal_inactive_file {2 * GIB}\n",
    }
    found = probe(tmp_path, MACHINE | groups, reserve=0)
    assert (found.capacity_bytes, found.free_bytes) == (16 * GIB, 10 * GIB)


def test_a_kernel_without_meminfo_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="proc/meminfo: cannot be read: no such file"):
        probe(tmp_path, {})
    with pytest.raises(UnavailableError, match="no MemTotal"):
        probe(tmp_path, {"/proc/meminfo": "nonsense\n"})


def test_budget_and_reserve_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="exclude each other"):
        MemoryOptions(budget="1GiB", reserve="1GiB")


def test_this_machine_has_memory() -> None:
    driver = optaned_tiers()[0]
    tier = driver.open("dram0", MemoryOptions(), Env())
    assert 0 <= tier.probe().free_bytes <= tier.probe().capacity_bytes
    tier.close()
