"""`clearhead tag MODEL "text" …`, or every line of a file or of standard input: a tag for each word."""

from __future__ import annotations

import sys
from typing import Any

from clearhead.cli.common import Json, ModelPath, Texts, is_one, is_typed, print_json, progress_counter, read_items


def tag(model: ModelPath, texts: Texts = None, as_json: Json = False) -> None:
    """Print the tag of each word of a text, one word per line.

    Words are separated by white space. An empty line stands after each of several texts.
    """
    import clearhead
    from clearhead.tasks.base.predictor import growing_windows

    loaded = clearhead.load(model)
    loaded.require("tag")
    given = read_items(texts)
    if as_json:
        everything = list(given)
        records = [_record(*each) for each in zip(everything, loaded.tag(everything), strict=True)]
        print_json(records[0] if is_one(texts) else records)
        return
    most = {"most": 1} if is_typed(texts) else {}
    with progress_counter("texts", shown=not is_one(texts)) as count:
        for window in growing_windows(given, **most):
            for found in loaded.tag(window):
                sys.stdout.write("".join(f"{word}\t{label}\n" for word, label in found))
                sys.stdout.write("" if is_one(texts) else "\n")
                count()


def _record(text: str, found: list[tuple[str, str]]) -> dict[str, Any]:
    return {"text": text, "tags": [{"word": word, "tag": label} for word, label in found]}
