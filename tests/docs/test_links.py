"""Links of the pages lead somewhere, and the lecture map names files and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import PAGES, ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
EVERY = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
MAP = ROOT / "docs" / "lecture-map.md"


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub links to them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}, and there is no such heading"


def test_index_has_every_page() -> None:
    linked = {Path(link).name for link in LINK.findall(prose(ROOT / "docs" / "index.md"))}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= linked


def map_cells(column: int) -> list[str]:
    """The code in one column of the lecture map: one string per `…`, with its row."""
    rows = [line for line in MAP.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d", line)]
    cells = [re.split(r"(?<!\\)\|", row)[column] for row in rows]
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


def test_files_of_the_lecture_map_exist() -> None:
    for code in map_cells(4):
        path, _, name = code.partition("::")
        file = ROOT / "src" / "clearhead" / path
        assert file.exists(), code
        assert not name or re.search(rf"^(def|class) {name}\b", file.read_text(encoding="utf-8"), re.MULTILINE), code


def test_tests_of_the_lecture_map_exist() -> None:
    last = ""
    for code in map_cells(5):
        path, _, name = code.split(" -k ")[0].partition("::")
        last = path or last  # `::name` is in the file before it
        file = ROOT / "tests" / last
        assert file.exists(), code
        assert not name or f"def {name}(" in file.read_text(encoding="utf-8"), code
