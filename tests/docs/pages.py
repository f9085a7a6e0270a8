"""The fenced blocks of a Markdown page: what is run, what is shown, and what is left out for a reason.

    ```python                     run in one namespace per page
    ```python title="sort.py"     written to that file before anything is run, whatever the language
    ```shell, ```bash             run by `bash -e`; what is exported stays for the page
    ```console                    lines after `$ ` are run, the others are their output
    ```text                       after one of these: its output
    <!-- not run: reason -->      just before a block: it is left out
    <!-- needs data: reason -->   just before a block: it is left out without $CLEARHEAD_DATA

In an output `…` stands for anything within its line, and alone on a line for any number of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

PYTHON = "python"
SHELL = ("shell", "bash", "console")
SHOWN = ("text", "yaml", "json", "js", "toml")  # never run by themselves

_FENCE = re.compile(r"^```(\S*)(.*)$")
_MARK = re.compile(r"<!-- (not run|needs data): (.+?) -->", re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line of code, counted from 1."""

    page: str
    line: int
    language: str
    code: str
    file: str = ""  # what it is written to
    not_run: str = ""  # why it is left out
    needs_data: str = ""  # why it needs $CLEARHEAD_DATA
    output: str | None = None  # the text block below it

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in (PYTHON, *SHELL) and not self.file


@dataclass(frozen=True)
class Command:
    """A shell command, and the output that the page shows; None if it shows none."""

    line: int
    text: str
    output: str | None


def blocks(page: Path, root: Path = ROOT) -> list[Block]:
    """The blocks of a page in their order; a text block that follows a run block becomes its output."""
    found: list[Block] = []
    for each in _fenced(page, root):
        if (
            each.language == "text"
            and not each.file
            and found
            and found[-1].is_run
            and _adjacent(page, found[-1], each)
        ):
            found[-1] = replace(found[-1], output=each.code)
        else:
            found.append(each)
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block, each with its output; any other block is one command."""
    if block.language != "console":
        return [Command(block.line, block.code, block.output)]
    found: list[Command] = []
    lines = block.code.splitlines()
    index = 0
    while index < len(lines):
        first = index
        if not lines[index].startswith("$ "):
            raise ValueError(f"{block.page}:{block.line + index}: a console block begins with `$ command`")
        text = [lines[index].removeprefix("$ ")]
        while text[-1].endswith("\\"):
            index += 1
            text.append(lines[index])
        index += 1
        start = index
        while index < len(lines) and not lines[index].startswith("$ "):
            index += 1
        found.append(Command(block.line + first, "\n".join(text), "\n".join(lines[start:index])))
    return found


def differs(shown: str, printed: str) -> bool:
    """Whether a command printed something else than the page shows; spaces at the ends of lines do not count."""
    expected = [line.rstrip() for line in shown.strip("\n").splitlines()]
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n" for line in expected
    )
    text = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, text) is None


def _fenced(page: Path, root: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    name = page.relative_to(root).as_posix()
    index = 0
    while index < len(lines):
        fence = _FENCE.match(lines[index])
        index += 1
        if fence is None:
            continue
        start = index
        while lines[index] != "```":
            index += 1
        marks = dict(_MARK.findall(_comment_before(lines, start - 1)))
        title = _TITLE.search(fence[2])
        yield Block(
            name,
            start + 1,
            fence[1],
            "\n".join(lines[start:index]),
            title[1] if title else "",
            marks.get("not run", ""),
            marks.get("needs data", ""),
        )
        index += 1


def _comment_before(lines: list[str], fence: int) -> str:
    """The HTML comment that ends on the line before a fence."""
    first = fence - 1
    if first < 0 or not lines[first].endswith("-->"):
        return ""
    while not lines[first].startswith("<!--"):
        first -= 1
    return " ".join(lines[first:fence])


def _adjacent(page: Path, first: Block, second: Block) -> bool:
    """Whether nothing but blank lines stands between two blocks."""
    lines = page.read_text(encoding="utf-8").splitlines()
    end = first.line + len(first.code.splitlines())  # its closing fence, counted from 1
    return not "".join(lines[end : second.line - 2]).strip()
