"""`clearhead predict MODEL "text" | image.png`: what a model answers, whatever its task is."""

from __future__ import annotations

from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, print_json


def predict(
    model: ModelPath,
    item: Annotated[str, typer.Argument(help="A text, or the path of an image.")],
    as_json: Json = False,
) -> None:
    """Print what a model of any task answers."""
    import clearhead

    loaded = clearhead.load(model)
    if as_json:
        print_json({"input": item, "task": loaded.task, **loaded.predict(item)})
    else:
        typer.echo(loaded.answer(item))
