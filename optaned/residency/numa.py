"""On which NUMA node copies land: the moving thread's memory policy, and a look at where pages really are.

Knows nodes by number. A node that is full lends from its neighbours instead of failing; `strays` finds that out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from optaned.residency.faults import NodeRefusedError
from optaned.residency.kernel import Kernel


@contextmanager
def on_node(kernel: Kernel, node: int | None) -> Iterator[None]:
    """Take this thread's new pages from `node` within the block. Raises NodeRefusedError."""
    if node is None:
        yield
        return
    try:
        kernel.prefer_node(node)
    except OSError as error:
        raise NodeRefusedError(node, error) from None
    try:
        yield
    finally:
        kernel.prefer_node(None)


def strays(kernel: Kernel, addresses: Sequence[int], node: int) -> float:
    """Return the share of pages, of those in memory, that lie on another node than `node`."""
    nodes = [found for found in kernel.nodes_of(addresses) if found is not None]
    return sum(found != node for found in nodes) / len(nodes) if nodes else 0.0
