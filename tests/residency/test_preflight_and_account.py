"""What is asked of the kernel before anything is touched, and what it tells of pages afterwards."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path

import pytest

from optaned.domain.model import ByteRange
from optaned.errors import ConfigError, UnavailableError
from optaned.residency import opening, preflight
from optaned.residency.account import Account, count
from optaned.residency.faults import explain
from optaned.residency.opening import open_pages
from tests.residency.conftest import MappedFiles, RefusingKernel, smaps_anonymous

MIB = 1 << 20


@pytest.mark.parametrize("mode", ["0", "1"])
def test_overcommit_that_counts_nothing_is_fine(tmp_path: Path, mode: str) -> None:
    preflight.check_overcommit(tmp_path)  # a kernel without the file
    told = tmp_path / "proc/sys/vm/overcommit_memory"
    told.parent.mkdir(parents=True)
    told.write_text(f"{mode}\n")
    preflight.check_overcommit(tmp_path)


def test_strict_overcommit_is_refused_before_anything_is_touched(
    tmp_path: Path, kernel: RefusingKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "proc/sys/vm/overcommit_memory"
    told.parent.mkdir(parents=True)
    told.write_text("2\n")
    monkeypatch.setattr(opening, "check_overcommit", lambda: preflight.check_overcommit(tmp_path))
    with pytest.raises(ConfigError, match=r"overcommit_memory is 2.*sysctl vm\.overcommit_memory=0") as caught:
        open_pages([tmp_path / "model.gguf"], in_place=[True], kernel=kernel)
    assert caught.value.exit_code == 78
    assert kernel.calls == []


class OldKernel(mmap.mmap):
    """Memory on a kernel that does not know MADV_POPULATE_WRITE."""

    def madvise(self, *_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def test_a_kernel_that_cannot_copy_on_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    preflight.check_populate()
    monkeypatch.setattr(preflight.mmap, "mmap", OldKernel)
    with pytest.raises(UnavailableError, match=r"cannot populate private pages; upgrade to 5\.14"):
        preflight.check_populate()


def test_every_refusal_is_one_line_with_a_next_step() -> None:
    for number in (errno.ENOMEM, errno.EPERM, errno.EINVAL, errno.EFAULT, errno.EIO, 133, errno.ENODEV, errno.EBADF):
        said = explain(OSError(number, os.strerror(number)))
        assert "\n" not in said
        assert said[0].islower()


def test_slices_are_counted_in_turn_and_add_up(tmp_path: Path, mapped: MappedFiles) -> None:
    files = []
    for name in "ab":
        files.append(tmp_path / name)
        files[-1].write_bytes(os.urandom(3 * MIB))
        mapped.map(files[-1])
    pages = open_pages(files, in_place=[True, True])
    pages.promote([ByteRange(0, 0, MIB), ByteRange(1, 2 * MIB, MIB)], numa_node=None)
    account = Account(pages.mappings, slice_bytes=MIB)
    assert account.look(1).anonymous_bytes == MIB
    assert account.look(4).anonymous_bytes == MIB
    assert account.look(1).anonymous_bytes == 2 * MIB
    assert account.look_at_all().swapped_bytes == 0
    pages.close()


def test_somebody_elses_write_is_noticed(tmp_path: Path, mapped: MappedFiles) -> None:
    """The ledger says what was asked, the account what is so: they must be able to differ."""
    file = tmp_path / "a"
    file.write_bytes(os.urandom(MIB))
    address = mapped.map(file)
    pages = open_pages([file], in_place=[True])
    ctypes.memset(address, 1, 1)
    assert count(address, MIB).anonymous_bytes == mmap.PAGESIZE == smaps_anonymous(address, MIB)
    assert pages.resident_page_bytes == 0
    pages.close()
