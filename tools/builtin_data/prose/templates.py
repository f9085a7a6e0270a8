"""The templates, which are plain text beside this file: one to a line, in sections.

`# name` begins a section and an empty line a new step of it; the lines of a step are ways of saying the same thing.
` / ` stands for the end of a line and ` // ` for the end of a paragraph.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

Steps = tuple[tuple[str, ...], ...]


@cache
def sections(name: str) -> dict[str, Steps]:
    """The sections of one of the files, each a sequence of steps."""
    text = files("builtin_data.prose").joinpath(f"{name}.txt").read_text(encoding="utf-8")
    found: dict[str, Steps] = {}
    for section in text.strip().removeprefix("# ").split("\n# "):
        title, _, body = section.partition("\n")
        found[title.strip()] = tuple(tuple(map(_breaks, step.splitlines())) for step in body.strip().split("\n\n"))
    return found


def lines(name: str, section: str) -> tuple[str, ...]:
    """The templates of a section that has one step."""
    (step,) = sections(name)[section]
    return step


def dialogue(name: str, section: str) -> tuple[tuple[str, str], ...]:
    """The templates of a section whose lines read `said = answered`."""
    pairs = (line.split(" = ") for line in lines(name, section))
    return tuple((said, answered) for said, answered in pairs)


def _breaks(line: str) -> str:
    return line.replace(" // ", "\n\n").replace(" / ", "\n")
