"""`clearhead tag MODEL "text"`: a tag for each word."""

from __future__ import annotations

from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, print_json


def tag(
    model: ModelPath,
    text: Annotated[str, typer.Argument(help="Words, separated by white space.")],
    as_json: Json = False,
) -> None:
    """Print the tag of each word of a text, one word per line."""
    import clearhead

    found = clearhead.load(model).tag(text)
    if as_json:
        print_json({"text": text, "tags": [{"word": word, "tag": tag} for word, tag in found]})
        return
    for word, label in found:
        typer.echo(f"{word}\t{label}")
