"""`clearhead generate MODEL "prompt"`: a text that continues a prompt."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from clearhead.cli.common import (
    FORMAT_HELP,
    CacheType,
    Engine,
    Int8,
    Json,
    ModelPath,
    Quantise,
    notes,
    print_json,
    shot_format,
    stdin_lines,
    with_search_options,
)


@with_search_options
def generate(
    model: ModelPath,
    search: dict[str, Any],
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads it from standard input.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate.")] = 200,
    temperature: Annotated[float | None, typer.Option(help="0 = greedy, the default with --shots; else 0.8.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this string; may be given several times.")] = None,
    shots: Annotated[
        str | None, typer.Option(help="A file of inputs with their outputs: the prompt is answered like these.")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help=FORMAT_HELP)] = None,
    cache: Annotated[int | None, typer.Option(help="Tokens of context to keep: memory of a fixed size.")] = None,
    engine: Engine = "auto",
    int8: Int8 = False,
    quantise: Quantise = None,
    cache_type: CacheType = None,
    as_json: Json = False,
) -> None:
    """Generate a text that continues a prompt."""
    import clearhead

    if temperature is None:
        temperature = 0.8 if search.get("beam_width", 1) == 1 and shots is None else 0.0
    search |= {"max_tokens": max_tokens, "temperature": temperature}
    prompt = "\n".join(stdin_lines()) if prompt == "-" else prompt
    loaded = clearhead.load(model, engine, int8, quantise=quantise, cache_type=cache_type)
    if shots is not None:
        loaded.require("generate")
        _answer(loaded, prompt, shots, shot_format(form), as_json, stops=stop or (), cache=cache, **search)
        return
    pieces = loaded.generate(prompt, stream=True, stops=stop or (), cache=cache, **search)
    if window := loaded.window(len(loaded.tokenizer.encode(prompt)) + max_tokens, cache):
        size = loaded.cache_bytes(window) / 1e6
        held = f"its cache holds {size:.1f} MB, however long the text"
        notes()(f"the model looks back at the last {window} tokens; {held}")
    if as_json:
        print_json({"prompt": prompt, "text": prompt + "".join(pieces)})
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def _answer(
    model: Any, text: str, path: str, form: dict[str, str], as_json: bool, stops: Sequence[str], **settings: Any
) -> None:
    """Print what follows the examples of a file and a text, up to the end of an output."""
    from clearhead.tasks.base.in_context import Shots, read_shots

    shots = Shots(read_shots(path), **form)
    prompt = shots.prompt(text)
    answer = "".join(model.generate(prompt, stream=True, stops=(*stops, shots.stop), **settings)).strip()
    if as_json:
        print_json({"prompt": prompt, "text": answer})
    else:
        sys.stdout.write(f"{answer}\n")
