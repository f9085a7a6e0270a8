"""`clearhead caption MODEL image.png …`: a sentence about each image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, print_json, read_items


def caption(
    model: ModelPath,
    images: Annotated[
        list[str] | None, typer.Argument(help="Image files; without them, the lines of standard input name them.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a sentence about an image. Several images have a line each: name, tab, sentence."""
    import clearhead

    loaded = clearhead.load(model)
    loaded.require("caption")
    given = list(read_items(images, loaded.reads))
    written = loaded.caption([Path(image) for image in given])
    records = [{"image": image, "caption": each} for image, each in zip(given, written, strict=True)]
    one = images is not None and len(images) == 1
    if as_json:
        print_json(records[0] if one else records)
        return
    for record in records:
        typer.echo(record["caption"] if one else f"{record['image']}\t{record['caption']}")
