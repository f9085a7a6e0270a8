"""`clearhead caption MODEL image.png`: a sentence about an image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, print_json


def caption(
    model: ModelPath, image: Annotated[Path, typer.Argument(help="An image file.")], as_json: Json = False
) -> None:
    """Print a sentence about an image."""
    import clearhead

    written = clearhead.load(model).caption(image)
    if as_json:
        print_json({"image": str(image), "caption": written})
    else:
        typer.echo(written)
