"""The verbs that use a trained model: translate, generate, classify, caption."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.output import Json, print_json

ModelPath = Annotated[str, typer.Argument(help="A run directory, or a name that `clearhead models` lists.")]


def translate(
    model: ModelPath,
    text: Annotated[
        str | None, typer.Argument(help="What to translate; without it, the lines of standard input.")
    ] = None,
    beams: Annotated[int, typer.Option(min=1, help="Beginnings kept; 1 = greedy.")] = 4,
    as_json: Json = False,
) -> None:
    """Translate a text, or every line of standard input."""
    import clearhead

    loaded = clearhead.load(model)
    texts = [line.rstrip("\n") for line in sys.stdin] if text is None else [text]
    written = loaded.translate(texts, beams)
    if as_json:
        print_json([{"text": source, "translation": target} for source, target in zip(texts, written, strict=True)])
    else:
        for line in written:
            typer.echo(line)


def generate(
    model: ModelPath,
    prompt: Annotated[str, typer.Argument(help="What the text begins with.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to write.")] = 200,
    temperature: Annotated[float, typer.Option(min=0, help="0 = always the likeliest.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the k likeliest.")] = None,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Draw from the likeliest that make up p.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="The same seed writes the same text.")] = None,
    as_json: Json = False,
) -> None:
    """Write a text that goes on from a prompt."""
    import clearhead

    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    pieces = clearhead.load(model).generate(prompt, max_tokens=max_tokens, stream=True, **settings)
    if as_json:
        print_json({"prompt": prompt, "text": prompt + "".join(pieces)})
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def classify(
    model: ModelPath,
    item: Annotated[str, typer.Argument(help="A text, or the path of an image.")],
    as_json: Json = False,
) -> None:
    """The label of a text or an image, with the probability of each."""
    import clearhead

    found = clearhead.load(model).classify(item)
    if as_json:
        print_json({"label": found.label, "probabilities": found.probabilities})
        return
    typer.echo(found.label)
    for label, probability in sorted(found.probabilities.items(), key=lambda each: -each[1])[:10]:
        typer.echo(f"  {probability:6.1%}  {label}")


def caption(
    model: ModelPath, image: Annotated[Path, typer.Argument(help="An image file.")], as_json: Json = False
) -> None:
    """A sentence about an image."""
    import clearhead

    written = clearhead.load(model).caption(image)
    if as_json:
        print_json({"image": str(image), "caption": written})
    else:
        typer.echo(written)
