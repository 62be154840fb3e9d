"""A mount is a PMem tier only where the mount, statx and the device agree; else the reason and a command that helps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.api import (
    Completed,
    ConfigError,
    Env,
    MissingFileError,
    Tier,
    TierInfo,
    TierKind,
    UnavailableError,
    is_dax,
)
from optaned.testing.tier_contract import TierContract
from optaned_fsdax import FsdaxOptions, FsdaxTier, optaned_tiers
from optaned_fsdax.mounts import mount_of
from optaned_fsdax.regions import find_region

# As `ndctl list -RDN` of version 71 prints two sockets.
LISTING: dict[str, Any] = {
    "dimms": [{"dev": f"nmem{n}", "id": f"8089-a2-1915-0000{n:04x}", "handle": n} for n in range(4)],
    "regions": [
        {
            "dev": "region1",
            "size": 270582939648,
            "type": "pmem",
            "numa_node": 1,
            "iset_id": -2506113243053544244,
            "mappings": [
                {"dimm": "nmem3", "offset": 268435456, "length": 135291469824, "position": 1},
                {"dimm": "nmem2", "offset": 268435456, "length": 135291469824, "position": 0},
            ],
            "namespaces": [{"dev": "namespace1.0", "mode": "fsdax", "map": "dev", "blockdev": "pmem1"}],
        },
        {"dev": "region0", "namespaces": [{"dev": "namespace0.0", "mode": "fsdax", "blockdev": "pmem0"}]},
    ],
}


class Machine:
    """A root folder with a mount, and an ndctl that answers (or does not)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mount("ext4", "/dev/pmem1", "rw,dax=always")
        self.folder = root / "mnt/pmem1"
        self.folder.mkdir(parents=True)
        self.ndctl: Callable[[], Completed] = lambda: Completed(0, json.dumps(LISTING), "")
        self.dax: dict[str, bool | None] = {}
        self.asked: list[Sequence[str]] = []

    def mount(self, kind: str, source: str, options: str) -> None:
        info = self.root / "proc/self/mountinfo"
        info.parent.mkdir(parents=True, exist_ok=True)
        info.write_text(
            "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
            f"40 22 259:1 / /mnt/pmem1 rw,noatime shared:30 - {kind} {source} {options}\n"
        )

    def file(self, name: str, *, dax: bool | None) -> None:
        (self.folder / name).write_bytes(b"GGUF")
        self.dax[name] = dax

    def run(self, argv: Sequence[str], deadline_s: float) -> Completed:
        self.asked.append(argv)
        return self.ndctl()

    def tier(self, **options: Any) -> FsdaxTier:
        env = Env(sysroot=self.root, run=self.run)
        return FsdaxTier(
            "pmem1", FsdaxOptions(mount="/mnt/pmem1", **options), env, is_dax=lambda path: self.dax.get(path.name, True)
        )

    def probe(self, **options: Any) -> TierInfo:
        return self.tier(**options).probe()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestFsdaxHoldsTheContract(TierContract):
    def make_tier(self, folder: Path) -> Tier:
        return Machine(folder).tier()


def test_a_dax_mount_is_read_in_place(machine: Machine) -> None:
    machine.file("model-00001-of-00002.gguf", dax=True)
    machine.file("model-00002-of-00002.gguf", dax=True)
    found = machine.probe(read_gbps=29)
    assert (found.kind, found.read_gbps, found.mount) == (TierKind.BYTE, 29, machine.folder)
    assert (found.numa_node, found.dimms) == (1, ("nmem2", "nmem3"))
    assert found.notes == ("DAX: statx says so of 2 files", "region1: 2 modules, interleave set 0xdd387f488ce42ccc")
    assert machine.asked == [("ndctl", "list", "-RDN")]


def test_an_empty_mount_is_believed_by_its_option(machine: Machine) -> None:
    assert machine.probe().notes[0] == "DAX: by mount option; no file there to ask"


def test_a_mount_with_the_attribute_on_its_files_is_dax(machine: Machine) -> None:
    machine.mount("xfs", "/dev/pmem1", "rw,dax=inode")
    machine.file("model.gguf", dax=True)
    assert "statx says so" in machine.probe().notes[0]


@pytest.mark.parametrize(
    ("kind", "source", "options", "fault"),
    [
        (
            "ext4",
            "/dev/pmem1",
            "rw",
            r"without dax=always.*`umount /mnt/pmem1 && mount -o dax=always /dev/pmem1 /mnt/pmem1`",
        ),
        ("xfs", "/dev/pmem1", "rw,dax=never", r"is mounted with dax=never; run `umount"),
        ("btrfs", "/dev/pmem1", "rw", r"btrfs has no DAX; make it ext4 or xfs: mkfs\.ext4 /dev/pmem1"),
        ("ext4", "/dev/nvme0n1p2", "rw,dax", r'lies on /dev/nvme0n1p2, which is no PMem; set driver = "file"'),
        ("tmpfs", "tmpfs", "rw", r'lies on tmpfs, which is no PMem; set driver = "file"'),
        ("ext4", "/dev/pmem1s", "rw", r"cannot do DAX \(sector or raw mode\).*--mode=fsdax"),
    ],
)
def test_a_mount_that_is_not_dax_is_refused(machine: Machine, kind: str, source: str, options: str, fault: str) -> None:
    machine.mount(kind, source, options)
    with pytest.raises(UnavailableError, match=fault) as caught:
        machine.probe()
    assert len(caught.value.lines) == 1


def test_one_file_that_went_through_the_page_cache_is_named(machine: Machine) -> None:
    machine.file("a.gguf", dax=True)
    machine.file("b.gguf", dax=False)
    with pytest.raises(
        UnavailableError, match=r"b\.gguf: is not mapped by DAX; dax=always needs a namespace of mode fsdax"
    ):
        machine.probe()
    machine.mount("ext4", "/dev/pmem1", "rw,dax=inode")
    with pytest.raises(UnavailableError, match=r"b\.gguf: is not mapped by DAX; run `umount"):
        machine.probe()


def test_pmem_under_another_device_is_proven_by_its_files(machine: Machine) -> None:
    machine.mount("xfs", "/dev/mapper/pmem-models", "rw,dax=always")
    with pytest.raises(UnavailableError, match="which is no PMem"):
        machine.probe()
    machine.file("a.gguf", dax=True)
    assert "statx says so" in machine.probe().notes[0]


def test_a_kernel_that_does_not_tell_leaves_the_mount_option(machine: Machine) -> None:
    machine.file("a.gguf", dax=None)
    assert machine.probe().notes[0] == "DAX: by mount option"
    machine.mount("ext4", "/dev/pmem1", "rw")
    with pytest.raises(UnavailableError, match="this kernel does not tell of files"):
        machine.probe()


def test_a_device_in_raw_mode_is_told(machine: Machine) -> None:
    queue = machine.root / "sys/block/pmem1/queue/dax"
    queue.parent.mkdir(parents=True)
    queue.write_text("0\n")
    with pytest.raises(UnavailableError, match="sector or raw mode"):
        machine.probe()


def raising(error: Exception) -> Callable[[], Completed]:
    def fail() -> Completed:
        raise error

    return fail


@pytest.mark.parametrize(
    ("ndctl", "note"),
    [
        (raising(FileNotFoundError()), "ndctl is not installed"),
        (raising(TimeoutError("ndctl did not end within 10 s")), "did not end within 10 s"),
        (raising(PermissionError("this driver declared no command")), "declared no command"),
        (lambda: Completed(1, "", "permission denied\n"), "ndctl failed: permission denied"),
        (lambda: Completed(0, "nonsense", ""), "no list of regions"),
        (lambda: Completed(0, "[]", ""), "knows no region of pmem1"),
        (lambda: Completed(0, "", ""), "knows no region of pmem1"),
    ],
)
def test_without_ndctl_the_declared_modules_count(machine: Machine, ndctl: Callable[[], Completed], note: str) -> None:
    node = machine.root / "sys/block/pmem1/device/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    machine.ndctl = ndctl
    found = machine.probe(dimms=["nmem2", "nmem3"])
    assert (found.dimms, found.numa_node) == (("nmem2", "nmem3"), 1)
    assert note in found.notes[1]


def test_modules_that_are_not_behind_the_mount_are_a_fault_of_the_configuration(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="dimms: nmem0, nmem1 declared, but behind it are nmem2, nmem3"):
        machine.probe(dimms=["nmem0", "nmem1"])


def test_a_missing_folder_is_told(machine: Machine) -> None:
    machine.folder.rmdir()
    with pytest.raises(MissingFileError, match="/mnt/pmem1: no such folder"):
        machine.probe()


def test_a_single_region_needs_no_list() -> None:
    region = find_region(LISTING["regions"][0], "pmem1")
    assert region is not None
    assert region.dimms == ("nmem2", "nmem3")
    assert find_region(LISTING["regions"], "pmem7") is None


@given(st.text(alphabet=st.sampled_from("0123456789 /:-abcdexmnt\\\n"), max_size=300))
def test_mountinfo_of_any_shape_is_read_or_refused(text: str) -> None:
    class Root:
        def path(self, _absolute: object) -> Root:
            return self

        def read_text(self, **_: object) -> str:
            return text + "\n22 1 254:0 / / rw - ext4 /dev/vda rw\n"

    assert mount_of(Root(), Path("/mnt/x")).type  # type: ignore[arg-type]


def test_the_innermost_and_last_mount_counts_and_blanks_are_read(tmp_path: Path) -> None:
    info = tmp_path / "proc/self/mountinfo"
    info.parent.mkdir(parents=True)
    info.write_text(
        "1 0 1:1 / / rw - ext4 /dev/vda rw\n"
        "2 1 1:2 / /mnt/a\\040b rw - ext4 /dev/pmem0 rw\n"
        "3 1 1:3 / /mnt/a\\040b rw - xfs /dev/pmem1 rw,dax=always\n"
    )
    found = mount_of(Env(sysroot=tmp_path), Path("/mnt/a b/models"))
    assert (found.source, found.type, found.device) == ("/dev/pmem1", "xfs", "pmem1")


def test_this_kernel_says_of_an_ordinary_file_that_it_is_not_dax(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    assert is_dax(file) in (False, None)
    with pytest.raises(FileNotFoundError):
        is_dax(tmp_path / "none")


def test_it_declares_that_it_runs_ndctl() -> None:
    (driver,) = optaned_tiers()
    assert (driver.name, driver.needs.commands) == ("fsdax", ("ndctl",))
