"""What several verbs share: options, reading standard input, and printing.

Tables are for people, `--json` prints one document, and progress is shown only on a terminal.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.errors import ConfigError, DataError
from clearhead.files import write_errors

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
ModelPath = Annotated[str, typer.Argument(help="A run directory, or a name that `clearhead models` lists.")]
Texts = Annotated[
    list[str] | None,
    typer.Argument(help="One or more texts, or files with a text on each line; without them, standard input."),
]
Items = Annotated[
    list[str] | None,
    typer.Argument(help="Texts, or paths of images; files with a text on each line; without them, standard input."),
]
Engine = Annotated[
    str, typer.Option(help="Inference engine: auto, torch, compiled, exact (rounds nothing but stored weights) or ct2.")
]
Int8 = Annotated[bool, typer.Option("--int8", help="8-bit weights: less memory and time, a little less quality.")]
FORMAT_HELP = 'How an example of --shots is written, with \\n for new lines: "Input: {input}\\nOutput: {output}\\n\\n".'
LINE_EVERY = 10.0  # seconds between lines of progress where there is no terminal for a bar
Quantise = Annotated[
    str | None, typer.Option(help="Round the weights to q8 (8 bits, as --int8) or q4 (4 bits, language models).")
]
CacheType = Annotated[
    str | None,
    typer.Option(
        help="Keys and values of a language model: f16 for half the memory of f32, with quantised weights also int8."
    ),
]


def shot_format(given: str | None) -> dict[str, str]:
    """The option --format as an argument; nothing if it was not given."""
    return {} if given is None else {"form": given.replace("\\n", "\n")}


# --- options of the verbs that generate text ---


def _search_options(
    beam_width: Annotated[int | None, typer.Option("--beams", help="Beam width; 1 = greedy.")] = None,
    beam_groups: Annotated[
        int, typer.Option("--groups", help="Divide the beams into this many groups that differ.")
    ] = 1,
    diversity_penalty: Annotated[
        float, typer.Option("--diversity", help="Penalty for a token that an earlier group has chosen.")
    ] = 0.0,
    length_penalty: Annotated[float, typer.Option(help="A score is log-probability / length^penalty.")] = 1.0,
    no_repeat_ngram: Annotated[
        int, typer.Option("--no-repeat", help="Never repeat an n-gram of this many tokens; 0 = may repeat.")
    ] = 0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1, tokens that were already used become less likely.")
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option(help="Taken off the logit of every token that was generated before.")
    ] = 0.0,
    frequency_penalty: Annotated[float, typer.Option(help="Taken off for each time that it was generated.")] = 0.0,
    banned_tokens: Annotated[
        list[int] | None, typer.Option(help="Id of a token that is never generated; may be given several times.")
    ] = None,
    prefix_tokens: Annotated[
        list[int] | None, typer.Option(help="Id of the token to begin with; may be given several times.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens.")] = None,
    top_p: Annotated[float, typer.Option(help="Sample from the fewest tokens that together have probability p.")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Sample from tokens at least this likely, relative to the likeliest.")
    ] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Random seed: the same seed gives the same text.")] = None,
) -> None:
    """The signature that `with_search_options` adds: settings of `clearhead.decode`, and their options."""


OPTIONS = {  # that are not called like the setting
    "beam_width": "--beams",
    "beam_groups": "--groups",
    "diversity_penalty": "--diversity",
    "no_repeat_ngram": "--no-repeat",
}


def with_search_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the search options in the place of its parameter `search`, which gets the settings that were given.

    An error about a setting names its option: `--beams=0 must be 1 or more`.
    """
    own = inspect.signature(verb, eval_str=True).parameters
    shared = inspect.signature(_search_options, eval_str=True).parameters
    parameters = [each for name, one in own.items() for each in (shared.values() if name == "search" else [one])]
    options = {each.name: OPTIONS.get(each.name, f"--{each.name.replace('_', '-')}") for each in parameters}

    @wraps(verb)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in shared}
        search = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items() if one is not None}
        try:
            verb(**values, search=search)
        except ConfigError as error:
            named = re.sub(r"\b(\w+_\w+\b|\w+(?==))", lambda found: options.get(found[0], found[0]), str(error))
            raise ConfigError(named) from error

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    return run


# --- standard input and output ---


def read_items(items: Sequence[str] | None, reads: str = "text") -> Iterable[str]:
    """The items to answer: the arguments, the lines of the text files that they name, or standard input.

    `reads` is what the model reads: an argument of a model that reads images is always the path of an image.
    """
    if from_stdin(items):
        return stdin_lines()
    assert items
    from clearhead.data.files import lines, names_file

    if reads != "text" or not any(_is_file(item) or names_file(item) for item in items):
        return items
    paths = [_text_file(item) for item in items]
    return (line for path in paths for _, line in lines(path, "utf-8"))


def _text_file(item: str) -> Path:
    """The path of a file with a text on each line."""
    from clearhead.data.files import TABLES, names_file, suffix

    path = Path(item)
    if not _is_file(item):
        reason = "no such file" if names_file(item) else "is a text beside the name of a file"
        raise DataError(f"{reason}; give files or texts, or pass the text on standard input", path=item)
    if suffix(path) in TABLES:
        raise DataError("is a table; give one text on each line, for instance by cut -f1", path=path)
    return path


def from_stdin(items: Sequence[str] | None) -> bool:
    """Whether the lines of standard input are the items: without arguments, or with `-`."""
    return not items or list(items) == ["-"]


def is_one(items: Sequence[str] | None, reads: str = "text") -> bool:
    """Whether one item was given, so that its answer may take several lines."""
    if not items or len(items) > 1 or from_stdin(items):
        return False
    return reads != "text" or not _is_file(items[0])


def _is_file(text: str) -> bool:
    with suppress(OSError, ValueError):  # a text that no file can be called
        return Path(text).is_file()
    return False


def is_typed(items: Sequence[str] | None) -> bool:
    """Whether somebody types the lines at a terminal: then each is answered at once."""
    return from_stdin(items) and sys.stdin.isatty()


def print_json(value: object) -> None:
    """Print a JSON document on standard output, non-ASCII text unescaped."""
    sys.stdout.write(format_json(value) + "\n")


def format_json(value: object, indent: str = "") -> str:
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


@contextmanager
def progress_bar(what: str, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A function of how many are done and how many there are: a bar on a terminal, now and then a line if not."""
    if not shown:
        yield lambda _done, _total: None
        return
    if not sys.stderr.isatty():
        last = time.monotonic()

        def line(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last > LINE_EVERY:
                last = time.monotonic()
                sys.stderr.write(f"clearhead: {done:,} of {total:,} {what}\n")

        yield line
        return
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], folds: int = -1) -> None:
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
