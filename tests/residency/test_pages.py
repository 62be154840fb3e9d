"""Pages of mapped files are copied and dropped; every refusal leaves ledger, kernel and bytes in agreement."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from optaned.domain.model import ByteRange
from optaned.errors import OptanedError, UnavailableError
from optaned.residency.account import Account, count
from optaned.residency.kernel import MADV_DONTNEED, MADV_POPULATE_WRITE, LinuxKernel
from optaned.residency.numa import strays
from optaned.residency.opening import open_pages
from optaned.residency.overlay import LostMappingError, overlay
from optaned.residency.pages import CLOSED, PIECE_BYTES, ModelPages
from tests.residency.conftest import MappedFiles, RefusingKernel, mapping_count, smaps_anonymous

PAGE = mmap.PAGESIZE
MIB = 1 << 20
WRITE, DROP = f"advise {MADV_POPULATE_WRITE}", f"advise {MADV_DONTNEED}"

Opened = tuple[ModelPages, int]


def written(path: Path, size_bytes: int) -> Path:
    path.write_bytes(os.urandom(size_bytes))
    return path


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return written(tmp_path / "shard.gguf", 10 * MIB + 100)


@pytest.fixture
def opened(shard: Path, mapped: MappedFiles, kernel: RefusingKernel) -> Opened:
    address = mapped.map(shard)
    return open_pages([shard], in_place=[True], workers=1, kernel=kernel), address


def agree(pages: ModelPages) -> bool:
    """Say whether ledger, pagemap and smaps tell the same."""
    copied = Account(pages.mappings).look_at_all().anonymous_bytes
    shown = sum(smaps_anonymous(m.address, m.size_bytes) for m in pages.mappings)
    return copied == shown == pages.resident_page_bytes


def test_what_is_promoted_is_copied_and_what_is_demoted_is_not(opened: Opened, shard: Path) -> None:
    pages, address = opened
    part = ByteRange(0, 5000, 6 * MIB)
    assert pages.promote([part], numa_node=None) == (6 * MIB, None)
    assert pages.promote([part], numa_node=None) == (0, None)
    assert pages.resident_bytes == pages.resident_of([part]) == 6 * MIB
    assert pages.resident_of([ByteRange(0, 0, 5001)]) == 1
    assert agree(pages)
    assert ctypes.string_at(address, 10 * MIB + 100) == shard.read_bytes()
    assert pages.demote([ByteRange(0, 5000, MIB)]).size_bytes == MIB
    assert agree(pages)
    assert pages.demote([part]) == (5 * MIB, None)
    assert pages.resident_page_bytes == 0
    assert agree(pages)
    assert ctypes.string_at(address, 10 * MIB + 100) == shard.read_bytes()
    pages.close()


def test_a_page_of_two_experts_stays_while_either_does(opened: Opened) -> None:
    pages, _ = opened
    left, right = ByteRange(0, 0, PAGE + 100), ByteRange(0, PAGE + 100, PAGE)
    pages.promote([left, right], numa_node=None)
    pages.demote([left])
    assert pages.resident_page_bytes == 2 * PAGE
    assert agree(pages)
    pages.demote([right])
    assert agree(pages)


def test_no_call_is_longer_than_a_stop_signal_may_wait(opened: Opened, kernel: RefusingKernel) -> None:
    pages, _ = opened
    kernel.sizes.clear()
    pages.promote([ByteRange(0, 0, 10 * MIB)], numa_node=None)
    pages.demote([ByteRange(0, 0, 10 * MIB)])
    assert len(kernel.sizes) >= 6
    assert max(kernel.sizes) <= PIECE_BYTES


def test_the_last_bytes_of_a_file_end_within_a_page(opened: Opened, shard: Path) -> None:
    pages, address = opened
    size = shard.stat().st_size
    assert pages.promote([ByteRange(0, size - 50, 50)], numa_node=None) == (50, None)
    assert agree(pages)
    assert ctypes.string_at(address + size - 50, 50) == shard.read_bytes()[-50:]


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EPERM, errno.EFAULT, errno.ENOSPC])
def test_a_refusal_part_way_keeps_what_came_before_it(
    opened: Opened, kernel: RefusingKernel, shard: Path, number: int
) -> None:
    pages, address = opened
    kernel.refuse[WRITE, 3] = number
    parts = [ByteRange(0, n * 2 * MIB + 100, 2 * MIB - 100) for n in range(5)]
    moved = pages.promote(parts, numa_node=None)
    assert moved.fault
    assert "\n" not in moved.fault
    assert moved.size_bytes == pages.resident_bytes == pages.resident_of(parts[:2])
    assert pages.resident_of(parts[2:]) == 0
    assert agree(pages)
    assert ctypes.string_at(address, shard.stat().st_size) == shard.read_bytes()
    assert pages.promote(parts, numa_node=None).fault is None
    assert agree(pages)


def test_several_workers_leave_nothing_behind_the_first_fault(shard: Path, mapped: MappedFiles) -> None:
    kernel = RefusingKernel()
    mapped.map(shard)
    pages = open_pages([shard], in_place=[False], workers=3, kernel=kernel)
    kernel.refuse[WRITE, 2] = errno.ENOMEM
    parts = [ByteRange(0, n * MIB, MIB) for n in range(10)]
    moved = pages.promote(parts, numa_node=None)
    assert moved.fault
    assert moved.size_bytes == pages.resident_bytes
    assert agree(pages)
    pages.close()


def test_a_refused_demotion_stays_in_the_ledger(opened: Opened, kernel: RefusingKernel) -> None:
    pages, _ = opened
    part = ByteRange(0, 0, MIB)
    pages.promote([part], numa_node=None)
    kernel.refuse[DROP, 1] = errno.EINVAL
    moved = pages.demote([part])
    assert (moved.size_bytes, pages.resident_bytes) == (0, MIB)
    assert moved.fault
    assert pages.demote([part]) == (MIB, None)


def test_a_refused_memory_policy_moves_nothing(opened: Opened, kernel: RefusingKernel) -> None:
    pages, _ = opened
    kernel.refuse["prefer_node", 1] = errno.EPERM
    moved = pages.promote([ByteRange(0, 0, MIB)], numa_node=0)
    assert moved.size_bytes == 0
    assert "NUMA node 0: memory policies are not permitted here" in (moved.fault or "")
    assert agree(pages)


def test_copies_land_on_the_node_that_is_named(opened: Opened) -> None:
    pages, address = opened
    moved = pages.promote([ByteRange(0, 0, MIB)], numa_node=0)
    if moved.fault and "policies" in moved.fault:
        pytest.skip(moved.fault)
    assert moved == (MIB, None)
    assert set(LinuxKernel().nodes_of([address + n * PAGE for n in range(16)])) == {0}
    assert strays(LinuxKernel(), [address], 1) == 1.0
    assert pages.stray_bytes == 0
    moved = pages.promote([ByteRange(0, MIB, MIB)], numa_node=1023)
    assert moved.size_bytes == 0
    assert "NUMA node 1023: there is none" in (moved.fault or "")


def test_bytes_that_are_not_mapped_are_refused_before_anything_moves(opened: Opened) -> None:
    pages, _ = opened
    for stray in (ByteRange(0, 20 * MIB, 10), ByteRange(3, 0, 10), ByteRange(0, 10 * MIB, 5 * MIB)):
        moved = pages.promote([ByteRange(0, 0, MIB), stray], numa_node=None)
        assert moved.size_bytes == 0
        assert "not mapped" in (moved.fault or "")
        assert "not mapped" in (pages.demote([stray]).fault or "")
    assert pages.resident_bytes == 0


def test_a_closed_model_moves_nothing(opened: Opened) -> None:
    pages, _ = opened
    pages.promote([ByteRange(0, 0, MIB)], numa_node=None)
    pages.close()
    assert pages.promote([ByteRange(0, MIB, MIB)], numa_node=None) == (0, CLOSED)
    assert pages.demote([ByteRange(0, 0, MIB)]) == (0, CLOSED)
    pages.close()


def test_holes_between_mappings_stay_holes(tmp_path: Path, mapped: MappedFiles) -> None:
    file = written(tmp_path / "holes.gguf", 8 * MIB)
    address = mapped.map(file)
    mapped.unmap(address, MIB)
    mapped.unmap(address + 3 * MIB, MIB)
    before = mapping_count([file])
    pages = open_pages([file], in_place=[True])
    assert mapping_count([file]) == before == 2
    assert pages.promote([ByteRange(0, 2 * MIB, MIB), ByteRange(0, 4 * MIB, MIB)], numa_node=None) == (2 * MIB, None)
    assert "not mapped" in (pages.promote([ByteRange(0, 2 * MIB, 2 * MIB)], numa_node=None).fault or "")
    assert agree(pages)
    pages.close()


def test_a_file_larger_than_memory_maps_and_promotes(tmp_path: Path, mapped: MappedFiles) -> None:
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    size = sum(int(meminfo[key].split()[0]) << 10 for key in ("MemTotal", "SwapTotal")) + (8 << 30)
    file = tmp_path / "sparse.gguf"
    with file.open("wb") as out:
        out.truncate(size)
        out.seek(size - 2 * MIB)
        out.write(b"\x07" * MIB)
    address = mapped.map(file)
    pages = open_pages([file], in_place=[False])
    part = ByteRange(0, size - 2 * MIB, MIB)
    assert pages.promote([part, ByteRange(0, size // 2, MIB)], numa_node=None) == (2 * MIB, None)
    assert count(address + part.offset, MIB).anonymous_bytes == MIB
    assert ctypes.string_at(address + part.offset, MIB) == b"\x07" * MIB
    assert mapping_count([file]) == 1
    pages.close()


def test_shared_memory_can_be_a_home(mapped: MappedFiles) -> None:
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip("no shared memory here")
    file = written(folder / f"optaned-test-{os.getpid()}.gguf", 2 * MIB)
    try:
        address = mapped.map(file)
        pages = open_pages([file], in_place=[True])
        assert pages.promote([ByteRange(0, 0, MIB)], numa_node=None) == (MIB, None)
        assert agree(pages)
        assert ctypes.string_at(address, 2 * MIB) == file.read_bytes()
        pages.close()
    finally:
        file.unlink()


@pytest.fixture
def three(tmp_path: Path, mapped: MappedFiles) -> tuple[Path, ...]:
    files = tuple(written(tmp_path / f"{n}.gguf", MIB) for n in range(3))
    for file in files:
        mapped.map(file)
    return files


def permissions(files: tuple[Path, ...]) -> list[str]:
    names = tuple(map(str, files))
    return [line.split()[1] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(names)]


def test_an_overlay_that_is_refused_part_way_is_taken_back(three: tuple[Path, ...], kernel: RefusingKernel) -> None:
    kernel.refuse["map_private", 3] = errno.ENOMEM
    with pytest.raises(UnavailableError, match=r"2\.gguf: cannot be mapped for moving: the kernel has no memory"):
        overlay(three, kernel)
    assert permissions(three) == ["r--s"] * 3
    assert overlay(three, kernel)
    assert permissions(three) == ["rw-p"] * 3


def test_a_mapping_that_cannot_be_put_back_ends_the_process_and_says_so(
    three: tuple[Path, ...], kernel: RefusingKernel
) -> None:
    kernel.refuse |= {("map_private", 2): errno.ENOMEM, ("map_shared", 1): errno.ENOMEM}
    with pytest.raises(LostMappingError, match="its mapping was lost"):
        overlay(three, kernel)


def test_a_file_that_is_gone_is_told(three: tuple[Path, ...], kernel: RefusingKernel) -> None:
    three[1].unlink()
    with pytest.raises(OptanedError, match=r"1\.gguf: cannot be opened again: no such file"):
        overlay(three, kernel)
    written(three[1], MIB)
    with pytest.raises(UnavailableError, match=r"1\.gguf.*was replaced"):
        overlay(three, kernel)
    assert permissions(three)[:1] == ["r--s"]


def test_the_address_limit_of_a_service_is_told(three: tuple[Path, ...], run_apart: Callable[[str], str]) -> None:
    """A real refusal: RLIMIT_DATA counts private writable mappings."""
    said = run_apart(
        "import resource; from pathlib import Path; from optaned.residency.kernel import LinuxKernel;"
        "from optaned.residency.overlay import overlay; from tests.residency.conftest import MappedFiles;"
        f"files = [Path(f) for f in {[str(f) for f in three]!r}]; mapped = MappedFiles(); [mapped.map(f) for f in files];"
        "resource.setrlimit(resource.RLIMIT_DATA, (1, resource.RLIM_INFINITY));"
        "\ntry: overlay(files, LinuxKernel())\nexcept Exception as e: print(type(e).__name__, e)"
        "\nprint([l.split()[1] for l in open('/proc/self/maps') if '.gguf' in l])"
    )
    assert "UnavailableError" in said
    assert "cannot be mapped for moving: the kernel has no memory" in said
    assert "['r--s', 'r--s', 'r--s']" in said
