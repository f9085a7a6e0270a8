"""`clearhead embed MODEL "text" | image.png`: one vector for a text or an image."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, is_typed, print_json, progress_counter, stdin_lines


def embed(
    model: ModelPath,
    item: Annotated[
        str | None, typer.Argument(help="A text, or the path of an image; without it, the lines of standard input.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print one vector for a text or an image: the mean over its tokens or patches.

    Each vector is a line of numbers.
    """
    import clearhead

    loaded = clearhead.load(model)
    items = [item] if item is not None else stdin_lines()
    if as_json:
        given = list(items)
        vectors = loaded.embed(given).tolist()
        print_json([{"item": each, "vector": vector} for each, vector in zip(given, vectors, strict=True)])
        return
    window = {"max_window": 1} if is_typed(item) else {}
    with progress_counter("lines", shown=item is None) as count:
        for vector in loaded.embed_stream(items, **window):
            sys.stdout.write(" ".join(f"{number:.6g}" for number in vector) + "\n")
            count()
