"""`clearhead data check PATH`: what a dataset holds, what looks wrong, and the command that trains on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.output import Json, console, print_json, print_table

if TYPE_CHECKING:
    from clearhead.data.check import Report

MAX_CLASSES = 12  # or image sizes listed


def check(
    path: Annotated[
        str,
        typer.Argument(
            help="File, folder, dataset name (see `data get`), aligned files `a,b`, joined texts `a+b`, or `builtin`."
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            help="Kind of data: pairs, text, labelled, tagged, images, captions, or a plugin's. Default: detect it."
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Column or language of the input side.")] = None,
    target: Annotated[str | None, typer.Option(help="Column or language of the output side.")] = None,
    encoding: Annotated[str, typer.Option(help="Text encoding of the files.")] = "utf-8",
    as_json: Json = False,
) -> None:
    """Report what a dataset holds and what looks wrong.

    Reads it as training would, counts and measures, lists suspicious rows, and prints the command to train with.
    """
    from clearhead.data import check as checking

    with _spinner(f"reading {path}"):
        report = checking.check(path, kind=kind, source=source, target=target, encoding=encoding)
    if as_json:
        print_json(asdict(report))
    else:
        _print(report)


@contextmanager
def _spinner(text: str) -> Iterator[None]:
    """A spinner on a terminal, nothing elsewhere."""
    screen = console(stderr=True)
    if screen.is_terminal:
        with screen.status(text):
            yield
    else:
        yield


def _print(report: Report) -> None:
    from rich.text import Text

    from clearhead.data.dataset import find_reader

    screen = console()
    arrow = " ({} → {})".format(*report.languages) if report.languages else ""
    screen.print(Text(report.path, style="bold"), soft_wrap=True)
    screen.print(f"{find_reader(report.kind).title}{arrow}: {_printable(report.reason)}\n")
    for name, value in _facts(report):
        screen.print(Text.assemble((f"{name:<12}", "cyan"), value))
    if report.lengths:
        rows = [
            (each.what, *map(_right, (each.shortest, each.median, each.most, each.longest))) for each in report.lengths
        ]
        print_table("", ("lengths", *(f"{name:>9}" for name in ("shortest", "median", "95 %", "longest"))), rows)
    _print_counts("class", report.classes)
    _print_counts("size", report.sizes)
    if report.faults:
        rows = [(_right(fault.count), fault.what, _places(fault.places, fault.count)) for fault in report.faults]
        print_table("", (f"{'count':>9}", "worth a look", "where"), rows)
    screen.print(Text("Train on it", style="bold"))
    screen.print(f"  {report.command}", soft_wrap=True)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    """(name, value) of every single number."""
    origin = "from the data" if report.own_validation else "held out, the same every time"
    yield "train", f"{report.train:,} {report.unit}"
    yield "validation", f"{report.validation:,} {report.unit}, {origin}"
    if report.duplicates is not None:
        yield "duplicates", f"{report.duplicates:,} repeated {report.unit}"
    if report.contradictions is not None:
        yield "ambiguous", f"{report.contradictions:,} inputs with several different answers"
    if report.leaked is not None:
        yield "leaked", f"{report.leaked:,} of the validation inputs are also in train"
    if report.looked_into < 1:
        yield "examined", f"{report.looked_into:.1%} of the text, spread evenly, for lengths and faults"
    if report.unknown is not None:
        known = f"{report.unknown.tokenizer}, {report.unknown.size:,} tokens"
        yield "unknown", f"{report.unknown.share:.2%} of validation tokens ({known})"


def _print_counts(name: str, counts: Any) -> None:
    if not counts:
        return
    total = sum(counts.values())
    listed = list(counts.items())[:MAX_CLASSES]
    rows = [(_printable(each), _right(count), f"{count / total:6.1%}") for each, count in listed]
    if len(counts) > len(listed):
        rest = list(counts.values())[len(listed) :]
        rows.append((f"{len(rest):,} more", _right(sum(rest)), f"{sum(rest) / total:6.1%}"))
    print_table("", (name, f"{'count':>9}", " share"), rows)


def _places(places: Sequence[str], count: int) -> str:
    """Places without repeated words: `line 3, 9, 12, …`."""
    if not places:
        return ""
    first, *others = map(_printable, places)
    word, _, _ = first.rpartition(" ")
    short = [first] + [other.removeprefix(f"{word} ") if word else other for other in others]
    return ", ".join(short) + (", …" if count > len(places) else "")


def _right(number: int) -> str:
    return f"{number:>9,}"


def _printable(text: str) -> str:
    """Text from a file without control characters."""
    return "".join(mark if mark.isprintable() else "�" for mark in text)
