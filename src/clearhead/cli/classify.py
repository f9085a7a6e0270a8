"""`clearhead classify MODEL "text" | image.png …`, or every line of a file or of standard input."""

from __future__ import annotations

import sys

from clearhead.cli.common import Items, Json, ModelPath, is_one, is_typed, print_json, progress_counter, read_items


def classify(model: ModelPath, items: Items = None, as_json: Json = False) -> None:
    """Print the label of each text or image.

    For one item, the probabilities of the labels follow. Several are a line each: label, tab, probability.
    """
    import clearhead
    from clearhead.tasks.base.predictor import growing_windows

    loaded = clearhead.load(model)
    loaded.require("classify")
    given = read_items(items, loaded.reads)
    most = {"most": 1} if is_typed(items) else {}
    if as_json:
        everything = list(given)
        found = loaded.classify(everything)
        records = [{"label": each.label, "probabilities": each.probabilities} for each in found]
        named = [{"item": item, **record} for item, record in zip(everything, records, strict=True)]
        print_json(records[0] if is_one(items, loaded.reads) else named)
        return
    with progress_counter("items", shown=not is_one(items, loaded.reads)) as count:
        for window in growing_windows(given, **most):
            for one in loaded.classify(window):
                if is_one(items, loaded.reads):
                    likeliest = sorted(one.probabilities.items(), key=lambda each: -each[1])[:10]
                    lines = [one.label, *(f"  {probability:6.1%}  {label}" for label, probability in likeliest)]
                    sys.stdout.write("\n".join(lines) + "\n")
                else:
                    sys.stdout.write(f"{one.label}\t{one.probabilities[one.label]:.4f}\n")
                count()
