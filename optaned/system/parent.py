"""Die with the parent: a child never outlives the process that answers for it. Knows no child by name."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


class OrphanError(OSError):
    """The parent was gone before the child could ask to die with it."""


def die_with_parent(expected_parent: int, *, deadly: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `deadly` when the thread that started this process ends; call it first thing in the child.

    Raises OrphanError when the parent is already another one: the signal would then never come. The kernel watches the
    starting *thread*, so that children are started from a thread that lives as long as its process.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(deadly), 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"cannot tie this process to its parent: {os.strerror(errno)}")
    if os.getppid() != expected_parent:
        raise OrphanError(f"parent {expected_parent} is gone (now {os.getppid()})")
