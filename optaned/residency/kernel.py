"""The system calls that move pages: mmap at an address, madvise, memory policy. Knows no model and no tier.

Python's own `mmap` maps where the kernel likes and unmaps when its object dies; here an address is given and the mapping
belongs to the library that made it. Every call raises OSError with the kernel's own errno, and lets other threads run.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Sequence
from typing import Protocol

MADV_DONTNEED = 4
MADV_DONTDUMP = 16
MADV_POPULATE_READ = 22
MADV_POPULATE_WRITE = 23

_PROT_READ, _PROT_WRITE = 1, 2
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_NORESERVE = 0x01, 0x02, 0x10, 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value

_MPOL_DEFAULT, _MPOL_PREFERRED = 0, 1
# More nodes than any kernel is built for.
_MAX_NODES = 1024
# (set_mempolicy, move_pages): the C library has no wrappers without libnuma.
_NUMA_CALLS = {"x86_64": (238, 279), "aarch64": (237, 239), "riscv64": (237, 239)}


class Kernel(Protocol):
    """What page moves ask of the kernel, so that tests can refuse the third call with ENOMEM."""

    def map_private(self, address: int, size_bytes: int, fd: int, offset: int) -> None:
        """Replace the mapping at `address` by a private, writable one that reserves nothing."""

    def map_shared(self, address: int, size_bytes: int, fd: int, offset: int) -> None:
        """Replace the mapping at `address` by a shared one for reading, as model libraries make it."""

    def advise(self, address: int, size_bytes: int, advice: int) -> None: ...

    def prefer_node(self, node: int | None) -> None:
        """Take this thread's new pages from a NUMA node while it has any; None: from wherever the thread runs."""

    def nodes_of(self, addresses: Sequence[int]) -> list[int | None]:
        """Return on which NUMA node each page lies, None for pages that are not in memory."""


class LinuxKernel:
    """The kernel that this process runs on. Callable from any thread."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        size, word = ctypes.c_size_t, ctypes.c_void_p
        self._mmap = libc.mmap
        self._mmap.restype = word
        self._mmap.argtypes = (word, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
        self._madvise = libc.madvise
        self._madvise.argtypes = (word, size, ctypes.c_int)
        self._syscall = libc.syscall
        self._syscall.restype = ctypes.c_long

    def map_private(self, address: int, size_bytes: int, fd: int, offset: int) -> None:
        flags = _MAP_PRIVATE | _MAP_FIXED | _MAP_NORESERVE
        self._map(address, size_bytes, _PROT_READ | _PROT_WRITE, flags, fd, offset)

    def map_shared(self, address: int, size_bytes: int, fd: int, offset: int) -> None:
        self._map(address, size_bytes, _PROT_READ, _MAP_SHARED | _MAP_FIXED, fd, offset)

    def _map(self, address: int, size_bytes: int, protection: int, flags: int, fd: int, offset: int) -> None:
        if self._mmap(address, size_bytes, protection, flags, fd, offset) == _MAP_FAILED:
            raise _last_error()

    def advise(self, address: int, size_bytes: int, advice: int) -> None:
        while self._madvise(address, size_bytes, advice):
            error = _last_error()
            if error.errno not in (errno.EINTR, errno.EAGAIN):
                raise error

    def prefer_node(self, node: int | None) -> None:
        number = _numa_calls()[0]
        if node is None:
            answer = self._syscall(number, _MPOL_DEFAULT, None, 0)
        else:
            mask = (ctypes.c_uint64 * (_MAX_NODES // 64))()
            mask[node // 64] = 1 << node % 64
            # Not MPOL_BIND: a node that runs full would then have the OOM killer end the engine.
            # The kernel leaves the last bit out of what it is told.
            answer = self._syscall(number, _MPOL_PREFERRED, mask, ctypes.c_ulong(_MAX_NODES + 1))
        if answer:
            raise _last_error()

    def nodes_of(self, addresses: Sequence[int]) -> list[int | None]:
        count = len(addresses)
        pages = (ctypes.c_void_p * count)(*addresses)
        status = (ctypes.c_int * count)()
        # Without target nodes move_pages moves nothing and only tells.
        if self._syscall(_numa_calls()[1], 0, ctypes.c_ulong(count), pages, None, status, 0):
            raise _last_error()
        return [node if node >= 0 else None for node in status]


def _numa_calls() -> tuple[int, int]:
    calls = _NUMA_CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return calls


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
