"""How verbs speak: tables for people, one JSON document with `--json`, progress only on a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def print_json(value: Any) -> None:
    """One JSON document on standard output, non-ASCII text kept readable."""
    sys.stdout.write(indented(value) + "\n")


def indented(value: Any, before: str = "") -> str:
    """JSON for people: one line for each thing, but a row of numbers or words is a single one."""
    inside = before + "  "
    if isinstance(value, dict) and value:
        parts = [f"{json.dumps(str(key), ensure_ascii=False)}: {indented(each, inside)}" for key, each in value.items()]
    elif isinstance(value, list | tuple) and any(isinstance(each, dict | list | tuple) for each in value):
        parts = [indented(each, inside) for each in value]
    else:
        return json.dumps(value, ensure_ascii=False)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inside}" + f",\n{inside}".join(parts) + f"\n{before}{closing}"


def read_lines() -> Iterator[str]:
    """The lines of standard input as they come, without their ends; what is not UTF-8 is refused by its number."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise DataError("is not UTF-8 text", path="standard input", line=number) from None


def notes(most: int = 5) -> Callable[[str], None]:
    """What the user should know, on standard error; a million lines do not make a million notes."""
    said = count(1)

    def note(sentence: str) -> None:
        if (number := next(said)) <= most:
            sys.stderr.write(f"clearhead: {sentence}\n")
        elif number == most + 1:
            sys.stderr.write("clearhead: and more of this kind\n")

    return note


@contextmanager
def counting(what: str, shown: bool) -> Iterator[Callable[[], None]]:
    """Call it for each thing that is done; on a terminal it shows how many there are and how fast they come."""
    if not (shown and sys.stderr.isatty() and not sys.stdout.isatty()):
        yield lambda: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"0 {what}", total=None)

        def one_more() -> None:
            progress.advance(bar)
            task = progress.tasks[bar]
            progress.update(bar, description=f"{task.completed:,.0f} {what}, {task.speed or 0:,.0f} a second")

        yield one_more


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], folds: int = -1) -> None:
    """A table that fits the terminal: one column, the last unless said, folds where there is no room."""
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place != folds % len(columns))
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console().print(table)


def console(stderr: bool = False, record: bool = False) -> Console:
    """A Rich console that never guesses markup in the user's text; a recording one is 80 wide."""
    from rich.console import Console

    return Console(markup=False, highlight=False, stderr=stderr, record=record, width=80 if record else None)


def save_svg(recorded: Console, path: Path, title: str) -> None:
    """What a recording console printed, as a picture that needs nothing from the network."""
    svg = re.sub(r"@font-face\s*\{.*?\}", "", recorded.export_svg(title=title), flags=re.DOTALL)
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"cannot write {path}: {problem.strerror or problem}") from None
