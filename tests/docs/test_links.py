"""Links in the pages lead somewhere, and the README's map shows what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.is_file(), link
        assert not anchor or anchor in _anchors(target.read_text()), link


def test_the_readme_s_map_names_folders_that_exist() -> None:
    text = (ROOT / "README.md").read_text().partition("## Where things are")[2]
    named = re.findall(r"^(\w+)/", text, re.MULTILINE)
    assert named
    assert all((ROOT / name).is_dir() for name in named)


def test_examples_named_in_pages_exist() -> None:
    named = {name for page in PAGES for name in re.findall(r"etc/[\w./-]+\w", page.read_text())}
    assert named
    assert all((ROOT / name).exists() for name in named)
