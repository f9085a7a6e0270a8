"""`clearhead translate MODEL "text"`, or every line of standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.common import (
    Engine,
    Int8,
    Json,
    ModelPath,
    Quantise,
    Texts,
    is_one,
    is_typed,
    notes,
    print_json,
    progress_counter,
    read_items,
    with_search_options,
)

if TYPE_CHECKING:
    from clearhead import Candidate


@with_search_options
def translate(
    model: ModelPath,
    search: dict[str, Any],
    texts: Texts = None,
    n_best: Annotated[int, typer.Option(help="Translations of each text, best first.")] = 1,
    coverage_penalty: Annotated[float, typer.Option(help="Penalty for parts of the source that are not read.")] = 0.0,
    temperature: Annotated[float, typer.Option(help="Above 0, sample instead of searching.")] = 0.0,
    engine: Engine = "auto",
    int8: Int8 = False,
    quantise: Quantise = None,
    as_json: Json = False,
) -> None:
    """Translate texts, or every line of a file or of standard input.

    With --n-best, each translation is a line of its own: score, tab, text.
    """
    import clearhead
    from clearhead.decode import Settings

    loaded = clearhead.load(model, engine, int8, quantise=quantise)
    loaded.require("translate")
    search.setdefault("beam_width", 1 if temperature else max(4, n_best))
    search |= {"n_best": n_best, "coverage_penalty": coverage_penalty, "temperature": temperature}
    settings = Settings(**search, return_logprobs=as_json)
    sources = read_items(texts)
    if as_json:
        given = list(sources)
        found = loaded.stream_candidates(given, settings, notes())
        print_json([_record(*each) for each in zip(given, found, strict=True)])
        return
    window = {"max_window": 1} if is_typed(texts) else {}
    with progress_counter("lines", shown=not is_one(texts)) as count:
        for candidates in loaded.stream_candidates(sources, settings, notes(), **window):
            for each in candidates:
                sys.stdout.write(f"{each.text}\n" if n_best == 1 else f"{each.score:.4f}\t{each.text}\n")
            count()


def _record(source: str, found: Sequence[Candidate]) -> dict[str, object]:
    several = [{"translation": each.text, "score": each.score} for each in found]
    return {"text": source, **several[0], "others": several[1:]}
