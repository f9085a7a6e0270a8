"""`clearhead predict MODEL "text" | image.png …`: what a model answers, whatever its task is."""

from __future__ import annotations

import typer

from clearhead.cli.common import Items, Json, ModelPath, is_one, print_json, read_items


def predict(model: ModelPath, items: Items = None, as_json: Json = False) -> None:
    """Print what a model of any task answers to each item."""
    import clearhead

    loaded = clearhead.load(model)
    given = read_items(items, loaded.reads)
    if not as_json:
        for item in given:
            typer.echo(loaded.answer(item))
        return
    everything = list(given)
    records = [
        {"input": item, "task": loaded.task, **found}
        for item, found in zip(everything, loaded.predict_batch(everything), strict=True)
    ]
    print_json(records[0] if is_one(items, loaded.reads) else records)
