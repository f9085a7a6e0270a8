"""`clearhead embed MODEL "text" | image.png`: one vector for a text or an image."""

from __future__ import annotations

import sys

from clearhead.cli.common import Items, Json, ModelPath, is_one, is_typed, print_json, progress_counter, read_items


def embed(model: ModelPath, items: Items = None, as_json: Json = False) -> None:
    """Print one vector for each text or image.

    It is the mean over its tokens or patches, as a line of numbers.
    """
    import clearhead

    loaded = clearhead.load(model)
    given = read_items(items, loaded.reads)
    if as_json:
        everything = list(given)
        vectors = loaded.embed(everything).tolist()
        print_json([{"item": each, "vector": vector} for each, vector in zip(everything, vectors, strict=True)])
        return
    window = {"max_window": 1} if is_typed(items) else {}
    with progress_counter("lines", shown=not is_one(items, loaded.reads)) as count:
        for vector in loaded.embed_stream(given, **window):
            sys.stdout.write(" ".join(f"{number:.6g}" for number in vector) + "\n")
            count()
