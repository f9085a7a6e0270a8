"""`clearhead data get NAME`: find or download a dataset; without a name, list all known datasets."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.output import Json, console, print_json, print_table

if TYPE_CHECKING:
    from clearhead.data.catalogue import Entry
    from clearhead.data.download import Report
    from clearhead.data.hub import LocalDataset

LINE_EVERY = 3.0  # seconds between progress lines where there is no terminal for a bar


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
        print_json(_facts(found.entry) | place)
    else:
        _print_found(found)


def _list(as_json: bool) -> None:
    from clearhead.data.catalogue import CATALOGUE
    from clearhead.data.hub import origin

    if as_json:
        print_json([_facts(entry) | {"here": origin(entry)} for entry in CATALOGUE.values()])
        return
    rows = [
        (entry.name, entry.kind, _size(entry), "yes" if origin(entry) else "no", f"{entry.title} [{entry.licence}]")
        for entry in CATALOGUE.values()
    ]
    print_table("", ("name", "kind", "  MB", "here", "what [licence]"), rows)


def _size(entry: Entry) -> str:
    return f"{_megabytes(entry.size) if entry.files else '-':>5}"


def _facts(entry: Entry) -> dict[str, Any]:
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
def _progress(silent: bool) -> Iterator[Report]:
    """A bar on a terminal, plain lines elsewhere; always on standard error, so that output can be piped."""
    if silent:
        yield lambda _what, _done, _total: None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _Lines()


@contextmanager
def _bar() -> Iterator[Report]:
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
