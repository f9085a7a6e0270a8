"""`clearhead models [NAME]`: the models that come with the package, or the card of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.common import Json, console, print_json

if TYPE_CHECKING:
    from clearhead.run import Description


def models(
    name: Annotated[str | None, typer.Argument(help="A model's name or a run directory, to show its card.")] = None,
    as_json: Json = False,
) -> None:
    """List the models that come with Clearhead, or show one card."""
    if name is None:
        _list(as_json)
        return
    from clearhead.run import describe, find, read_card

    place = find(name)
    if as_json:
        print_json(asdict(describe(place)) | {"card": read_card(place)})
    else:
        typer.echo(read_card(place).rstrip("\n"))


def _list(as_json: bool) -> None:
    from clearhead.run import BUNDLED, bundled_names, describe

    found = [describe(BUNDLED / name) for name in bundled_names()]
    if as_json:
        print_json([asdict(model) for model in found])
    elif found:
        width = 2 + max(len(model.name) for model in found)
        for model in found:
            _print(model, width)
    else:
        typer.echo("No model comes with this package; train one: clearhead train translate --data builtin")


def _print(model: Description, width: int) -> None:
    """Print the figures on one line, then title, data and licence."""
    from rich.padding import Padding
    from rich.text import Text

    facts = [model.task, *_figures(model)]
    console().print(f"{model.name:<{width}}{', '.join(facts)}", soft_wrap=True, highlight=False)
    for text in (model.title, *([f"Data and licence: {model.licence}"] if model.licence else [])):
        console().print(Padding(Text(text, style="dim"), (0, 0, 0, width)))


def _figures(model: Description) -> Iterator[str]:
    """Parameters, size, and the first score, which is the one usually reported; the card has them all."""
    if model.parameters is not None:
        yield f"{model.parameters:,} parameters"
    yield f"{model.size / 1e6:.1f} MB"
    yield from (f"{name} {value:.4g}" for name, value in islice(model.scores.items(), 1))
