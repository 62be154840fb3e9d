"""What must be true of the kernel before a model is mapped for moving: asked first, since nothing can be undone halfway."""

from __future__ import annotations

import errno
import mmap
import platform
from pathlib import Path

from optaned.errors import ConfigError, UnavailableError
from optaned.residency.kernel import MADV_POPULATE_WRITE

_OVERCOMMIT = "proc/sys/vm/overcommit_memory"
_STRICT = 2


def check_overcommit(sysroot: Path = Path("/")) -> None:
    """Raise ConfigError where the kernel counts every private mapping in full: a large model could then not be mapped.

    MAP_NORESERVE is ignored in that mode. Cheap, reads one file; a kernel that has no such file refuses nothing.
    """
    try:
        mode = int((sysroot / _OVERCOMMIT).read_text())
    except (OSError, ValueError):
        return
    if mode == _STRICT:
        raise ConfigError(
            "vm.overcommit_memory is 2, so private mappings of a model are refused; "
            'set `sysctl vm.overcommit_memory=0`, or placement.policy = "home" to move nothing'
        )


def check_populate() -> None:
    """Raise UnavailableError on a kernel that cannot copy pages on request.

    Touching each page instead would work, but a machine without memory would then answer with a signal that ends the
    engine where the call answers with ENOMEM: such kernels are refused.
    """
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        try:
            page.madvise(MADV_POPULATE_WRITE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise UnavailableError(
                f"Linux {platform.release()} cannot populate private pages; upgrade to 5.14 or later, "
                'or set placement.policy = "home" to move nothing'
            ) from None
