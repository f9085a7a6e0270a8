"""Printing: tables for people, one JSON document with `--json`, progress only on a terminal."""

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

from clearhead.errors import DataError
from clearhead.files import write_errors

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def print_json(value: Any) -> None:
    """Print a JSON document on standard output, non-ASCII text unescaped."""
    sys.stdout.write(format_json(value) + "\n")


def format_json(value: Any, indent: str = "") -> str:
    """Indented JSON in which a list of numbers or strings stays on one line, so that matrices are readable."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        brackets = "{}"
        parts = [
            f"{json.dumps(str(key), ensure_ascii=False)}: {format_json(each, inner)}" for key, each in value.items()
        ]
    elif isinstance(value, list | tuple) and any(isinstance(each, dict | list | tuple) for each in value):
        brackets = "[]"
        parts = [format_json(each, inner) for each in value]
    else:
        return json.dumps(value, ensure_ascii=False)
    return f"{brackets[0]}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{brackets[1]}"


def stdin_lines() -> Iterator[str]:
    """The lines of standard input as they arrive, without line ends."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise DataError("is not UTF-8 text", path="standard input", line=number) from None


def notes(limit: int = 5) -> Callable[[str], None]:
    """A function that prints notes on standard error, at most `limit` of them: input may have millions of lines."""
    numbers = count(1)

    def note(sentence: str) -> None:
        if (number := next(numbers)) <= limit:
            sys.stderr.write(f"clearhead: {sentence}\n")
        elif number == limit + 1:
            sys.stderr.write("clearhead: further notes are not shown\n")

    return note


@contextmanager
def progress_counter(what: str, shown: bool) -> Iterator[Callable[[], None]]:
    """A function to call once per item; if output is redirected and standard error is a terminal, it shows a count."""
    if not (shown and sys.stderr.isatty() and not sys.stdout.isatty()):
        yield lambda: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"0 {what}", total=None)

        def advance() -> None:
            progress.advance(bar)
            task = progress.tasks[bar]
            progress.update(bar, description=f"{task.completed:,.0f} {what}, {task.speed or 0:,.0f} per second")

        yield advance


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], folds: int = -1) -> None:
    """Print a table that fits the terminal; the column number `folds`, by default the last, wraps if it must."""
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=index != folds % len(columns))
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console().print(table)


def console(stderr: bool = False, record: bool = False) -> Console:
    """A Rich console without markup, so that the user's text is printed as it is; a recording one is 80 wide."""
    from rich.console import Console

    return Console(markup=False, highlight=False, stderr=stderr, record=record, width=80 if record else None)


def save_svg(recorded: Console, path: Path, title: str) -> None:
    """Write what a recording console printed as an SVG that loads nothing from the network."""
    svg = re.sub(r"@font-face\s*\{.*?\}", "", recorded.export_svg(title=title), flags=re.DOTALL)
    with write_errors(path):
        path.write_text(svg, encoding="utf-8")
