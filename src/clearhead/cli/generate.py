"""`clearhead generate MODEL "prompt"`: a text that continues a prompt."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from clearhead.cli.options import (
    Beams,
    Diversity,
    Engine,
    Groups,
    Int8,
    LengthPenalty,
    MinP,
    ModelPath,
    NoRepeat,
    Penalty,
    Seed,
    TopK,
    TopP,
)
from clearhead.cli.output import Json, notes, print_json


def generate(
    model: ModelPath,
    prompt: Annotated[str, typer.Argument(help="The text to continue.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate.")] = 200,
    temperature: Annotated[float | None, typer.Option(help="0 = greedy; 0.8 by default.")] = None,
    beams: Beams = None,
    groups: Groups = 1,
    diversity: Diversity = 0.0,
    length_penalty: LengthPenalty = 1.0,
    no_repeat: NoRepeat = 0,
    repetition_penalty: Penalty = 1.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this string; may be given several times.")] = None,
    cache: Annotated[int | None, typer.Option(help="Tokens of context to keep: memory of a fixed size.")] = None,
    seed: Seed = None,
    engine: Engine = "auto",
    int8: Int8 = False,
    as_json: Json = False,
) -> None:
    """Generate a text that continues a prompt."""
    import clearhead

    settings: dict[str, Any] = {
        "temperature": (0.0 if beams and beams > 1 else 0.8) if temperature is None else temperature,
        "beam_width": 1 if beams is None else beams,
        "beam_groups": groups,
        "diversity_penalty": diversity,
        "length_penalty": length_penalty,
        "no_repeat_ngram": no_repeat,
        "repetition_penalty": repetition_penalty,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
    }
    loaded = clearhead.load(model, engine, int8)
    pieces = loaded.generate(prompt, max_tokens=max_tokens, stream=True, stops=stop or (), cache=cache, **settings)
    if window := loaded.window(len(loaded.tokenizer.encode(prompt)) + max_tokens, cache):
        size = loaded.cache_bytes(window) / 1e6
        notes()(
            f"the model looks back at the last {window} tokens; its cache holds {size:.1f} MB, however long the text"
        )
    if as_json:
        print_json({"prompt": prompt, "text": prompt + "".join(pieces)})
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
