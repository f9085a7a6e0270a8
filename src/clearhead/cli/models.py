"""`clearhead models [NAME]`: the models that come with the package, or the card of one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from clearhead.bundled import Description


def models(
    name: Annotated[str | None, typer.Argument(help="Show the card of this model or run directory.")] = None,
    as_json: Json = False,
) -> None:
    """List the models that come with the package, or show the card of one."""
    if name is None:
        _list(as_json)
    else:
        _show(name, as_json)


def _list(as_json: bool) -> None:
    from clearhead.bundled import bundled

    found = bundled()
    if as_json:
        print_json([asdict(model) for model in found])
    elif found:
        rows = [
            (model.name, model.task, _count(model), _megabytes(model), _score(model), _what(model)) for model in found
        ]
        print_table("", ("name", "task", "parameters", " MB", "score", "what [licence]"), rows)
    else:
        typer.echo("No model comes with this package; train one: clearhead train translate --data builtin")


def _show(name: str, as_json: bool) -> None:
    from clearhead.bundled import describe, find, read_card

    place = find(name)
    if as_json:
        print_json(asdict(describe(place)) | {"card": read_card(place)})
    else:
        typer.echo(read_card(place).rstrip("\n"))


def _count(model: Description) -> str:
    return "–" if model.parameters is None else f"{model.parameters:>10,}"


def _megabytes(model: Description) -> str:
    return f"{model.size / 1e6:3.1f}"


def _score(model: Description) -> str:
    """The first score is the one that people report; the card has them all."""
    return next((f"{name} {value:.4g}" for name, value in model.scores.items()), "–")


def _what(model: Description) -> str:
    return f"{model.title} [{model.licence}]" if model.licence else model.title
