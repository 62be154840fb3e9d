"""What the kernel's refusals mean for a move or an overlay, in one line for people. Knows errno and nothing else."""

from __future__ import annotations

import errno

# On every architecture but alpha, mips, parisc and sparc; Python has no name for it.
_EHWPOISON = 133
_MEANINGS = {
    errno.ENOMEM: "the kernel has no memory for it (ENOMEM); lower the tier's budget, or raise the memory or address limit",
    errno.EPERM: "the kernel does not permit it (EPERM); look at the service's seccomp filter and sealed memory",
    errno.EINVAL: "the kernel refuses the call (EINVAL); it may be older than Linux 5.14, or the pages are locked",
    errno.EFAULT: "the file cannot be read there (EFAULT); it was cut short, or its memory is damaged",
    errno.EIO: "the file cannot be read there (EIO); check the disk",
    _EHWPOISON: "the memory is damaged there (EHWPOISON); take the module out of use",
    errno.ENODEV: "the file system cannot be mapped (ENODEV); move the model to another one",
}
_NODE_MEANINGS = {
    errno.EINVAL: "there is none with memory that this process may use (EINVAL)",
    errno.EPERM: "memory policies are not permitted here (EPERM)",
    errno.ENOSYS: "this kernel has no memory policies (ENOSYS)",
}


class NodeRefusedError(OSError):
    """The kernel does not take this thread's memory from a NUMA node."""

    def __init__(self, node: int, error: OSError) -> None:
        super().__init__(error.errno, error.strerror)
        self.node = node


def explain(error: OSError) -> str:
    """Return the reason and the next step."""
    if isinstance(error, NodeRefusedError):
        return f"NUMA node {error.node}: {_NODE_MEANINGS.get(error.errno or 0, error.strerror)}; correct `numa_node`"
    known = _MEANINGS.get(error.errno or 0)
    return known or f"the kernel says {(error.strerror or str(error)).lower()} (errno {error.errno})"
