"""`clearhead classify MODEL "text" | image.png`: the label of a text or an image."""

from __future__ import annotations

from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, print_json


def classify(
    model: ModelPath,
    item: Annotated[str, typer.Argument(help="A text, or the path of an image.")],
    as_json: Json = False,
) -> None:
    """Print the label of a text or an image, with the probability of each."""
    import clearhead

    found = clearhead.load(model).classify(item)
    if as_json:
        print_json({"label": found.label, "probabilities": found.probabilities})
        return
    typer.echo(found.label)
    for label, probability in sorted(found.probabilities.items(), key=lambda each: -each[1])[:10]:
        typer.echo(f"  {probability:6.1%}  {label}")
