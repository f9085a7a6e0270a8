"""`clearhead data check PATH`: what a dataset holds; `clearhead data get NAME`: find or download a known one."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.common import Json, console, print_json, print_table

if TYPE_CHECKING:
    from clearhead.data.catalogue import Entry
    from clearhead.data.check import Report
    from clearhead.data.download import Report as OnProgress
    from clearhead.data.hub import LocalDataset

MAX_CLASSES = 12  # or image sizes listed
LINE_EVERY = 3.0  # seconds between progress lines where there is no terminal for a bar

app = typer.Typer(help="Check a dataset, or download a known one.", no_args_is_help=True)


# --- check ---


@app.command("check")
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

    screen = console(stderr=True)
    with screen.status(f"reading {path}") if screen.is_terminal else nullcontext():
        report = checking.check(path, kind=kind, source=source, target=target, encoding=encoding)
    if as_json:
        print_json(asdict(report))
    else:
        _print_report(report)


def _print_report(report: Report) -> None:
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
    yield "train", _counted(report.train, report.unit)
    yield "validation", f"{_counted(report.validation, report.unit)}, {origin}"
    if report.duplicates is not None:
        yield "duplicates", _counted(report.duplicates, f"repeated {report.unit}")
    if report.contradictions is not None:
        yield "ambiguous", f"{_counted(report.contradictions, 'inputs')} with several different answers"
    if report.leaked is not None:
        verb = "is" if report.leaked == 1 else "are"
        yield "leaked", f"{report.leaked:,} of the validation inputs {verb} also in train"
    if report.looked_into < 1:
        yield "examined", f"{report.looked_into:.1%} of the text, spread evenly, for lengths and faults"
    if report.unknown is not None:
        known = f"{report.unknown.tokenizer}, {report.unknown.size:,} tokens"
        yield "unknown", f"{report.unknown.share:.2%} of validation tokens ({known})"


def _counted(count: int, unit: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{count:,} {unit.removesuffix('s') if count == 1 else unit}"


def _print_counts(name: str, counts: Mapping[str, int]) -> None:
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


# --- get ---


@app.command("get")
def get(
    name: Annotated[str | None, typer.Argument(help="Name of a dataset; without one, list all.")] = None,
    as_json: Json = False,
) -> None:
    """Find a known dataset, or download it.

    Looks below $CLEARHEAD_DATA, then in the cache, then on the web. Without a name, lists all known datasets.
    """
    from clearhead.data.hub import get as get_dataset

    if name is None:
        _list(as_json)
        return
    with _progress(silent=as_json) as report:
        found = get_dataset(name, report)
    if as_json:
        place = {"path": str(found.path), "here": found.origin, "sums": found.sums, "next": _next(found)}
        print_json(_entry_facts(found.entry) | place)
    else:
        _print_found(found)


def _list(as_json: bool) -> None:
    from clearhead.data.catalogue import CATALOGUE
    from clearhead.data.hub import origin

    if as_json:
        print_json([_entry_facts(entry) | {"here": origin(entry)} for entry in CATALOGUE.values()])
        return
    rows = [
        (entry.name, entry.kind, _size(entry), "yes" if origin(entry) else "no", f"{entry.title} [{entry.licence}]")
        for entry in CATALOGUE.values()
    ]
    print_table("", ("name", "kind", "  MB", "here", "what [licence]"), rows)


def _size(entry: Entry) -> str:
    return f"{_megabytes(entry.size) if entry.files else '-':>5}"


def _entry_facts(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "title": entry.title,
        "licence": entry.licence,
        "size": entry.size,
        "addresses": [file.address for file in entry.files],
        **asdict(entry.use),
    }


def _print_found(found: LocalDataset) -> None:
    rows = [
        (found.entry.name, found.entry.title),
        ("kind", found.entry.kind),
        ("licence", found.entry.licence),
        ("where", f"{found.path} ({found.origin})"),
        *(("sum", f"{name} {found_sum}, recorded: nobody publishes one") for name, found_sum in found.sums.items()),
        ("try", _next(found)),
    ]
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        typer.echo(f"{label:<{width}}  {text}")


def _next(found: LocalDataset) -> str:
    """The command that checks the data, quoted for the shell."""
    hints = [f"--{key} {value}" for key, value in asdict(found.entry.use).items() if value]
    return " ".join(["clearhead data check", shlex.quote(str(found.path)), *hints])


@contextmanager
def _progress(silent: bool) -> Iterator[OnProgress]:
    """A bar on a terminal, plain lines elsewhere; always on standard error, so that output can be piped."""
    if silent:
        yield lambda _what, _done, _total: None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _Lines()


@contextmanager
def _bar() -> Iterator[OnProgress]:
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console(stderr=True)) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report


class _Lines:
    """Progress as plain lines: one every few seconds and one at the end of each file."""

    def __init__(self) -> None:
        self.what = ""
        self.began = self.printed = 0.0
        self.offset = 0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Print the progress of a file if it is time to."""
        now = time.monotonic()
        if what != self.what:
            self.what, self.began, self.printed, self.offset = what, now, now, done
        if now - self.printed < LINE_EVERY and done != total:
            return
        self.printed = now
        rate = (done - self.offset) / max(now - self.began, 1e-9)
        words = [f"{_megabytes(done)} of {_megabytes(total)} MB", f"{_megabytes(int(rate))} MB/s"]
        if total and rate and done < total:
            words.append(f"{(total - done) / rate:.0f} s left")
        typer.echo(f"{what}: {', '.join(words)}", err=True)


def _megabytes(count: int | None) -> str:
    return "?" if count is None else f"{count / 1e6:.1f}"
