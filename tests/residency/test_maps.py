"""Mappings are found by real path and inode, however the library cut them up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.errors import UnavailableError
from optaned.residency.maps import MappedFile, Mapping, find_mappings

A, B = MappedFile(Path("/mnt/pmem0/a.gguf"), 11), MappedFile(Path("/mnt/pmem1/b c.gguf"), 12)


def line(address: int, size: int, offset: int, inode: int, path: str) -> str:
    return f"{address:x}-{address + size:x} r--s {offset:08x} 103:02 {inode}                 {path}"


def test_files_are_found_among_everything_else() -> None:
    text = "\n".join(
        [
            "55fe0c0de000-55fe0c0e0000 r--p 00000000 fe:00 260131                     /usr/bin/cat",
            "7fff0000-7fff1000 rw-p 00000000 00:00 0 ",
            "7ffe0000-7ffe1000 r-xp 00000000 00:00 0                          [vdso]",
            line(0x700000, 0x4000, 0x2000, 12, r"/mnt/pmem1/b\040c.gguf"),
            line(0x500000, 0x3000, 0x1000, 11, "/mnt/pmem0/a.gguf"),
        ]
    )
    assert find_mappings(text, [A, B]) == (
        Mapping(0, 0x1000, 0x3000, 0x500000),
        Mapping(1, 0x2000, 0x4000, 0x700000),
    )


def test_a_hole_leaves_two_mappings_and_neighbours_are_one() -> None:
    pieces = [(0x500000, 0x1000, 0), (0x501000, 0x1000, 0x1000), (0x508000, 0x1000, 0x8000)]
    text = "\n".join(line(*piece, 11, "/mnt/pmem0/a.gguf") for piece in pieces)
    found = find_mappings(text, [A])
    assert found == (Mapping(0, 0, 0x2000, 0x500000), Mapping(0, 0x8000, 0x1000, 0x508000))
    assert found[1].address_of(0x8010) == 0x508010


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is not mapped by the loaded model"),
        (line(0x500000, 0x1000, 0, 99, "/mnt/pmem0/a.gguf"), "was replaced after it had been loaded"),
        (
            line(0x500000, 0x2000, 0, 11, "/mnt/pmem0/a.gguf")
            + "\n"
            + line(0x900000, 0x1000, 0, 11, "/mnt/pmem0/a.gguf"),
            "is mapped twice",
        ),
    ],
)
def test_what_cannot_be_laid_over_is_told(text: str, fault: str) -> None:
    with pytest.raises(UnavailableError, match=fault):
        find_mappings(text, [A])


def test_a_deleted_file_is_still_that_file() -> None:
    assert find_mappings(line(0x500000, 0x1000, 0, 11, "/mnt/pmem0/a.gguf (deleted)"), [A])


@given(st.text())
def test_no_text_is_worse_than_not_mapped(text: str) -> None:
    with pytest.raises(UnavailableError, match="is not mapped"):
        find_mappings(text, [A])
