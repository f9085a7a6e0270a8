"""The verbs that use a trained model: translate, generate, classify, caption, embed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.output import Json, counting, notes, print_json, read_lines

if TYPE_CHECKING:
    from clearhead.api import Candidate

ModelPath = Annotated[str, typer.Argument(help="A run directory, or a name that `clearhead models` lists.")]


Beams = Annotated[int | None, typer.Option(help="Beginnings kept by the search; 1 = greedy.")]
NoRepeat = Annotated[int, typer.Option(help="No run of so many tokens is written twice; 0 = may repeat.")]
Penalty = Annotated[float, typer.Option("--repetition-penalty", help="Above 1, what was said becomes less likely.")]
TopK = Annotated[int | None, typer.Option(help="Draw from the k likeliest.")]
TopP = Annotated[float, typer.Option(help="Draw from the likeliest that together have probability p.")]
MinP = Annotated[float, typer.Option(help="Draw from those at least so likely, relative to the likeliest.")]
Seed = Annotated[int | None, typer.Option(help="The same seed writes the same text.")]
Engine = Annotated[str, typer.Option(help="What makes the steps: auto, torch, compiled or ct2.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Weights as bytes: less memory and time, a little less quality.")]


def translate(
    model: ModelPath,
    text: Annotated[
        str | None, typer.Argument(help="What to translate; without it, the lines of standard input.")
    ] = None,
    beams: Beams = None,
    n_best: Annotated[int, typer.Option(help="Translations of each text, the best first.")] = 1,
    length_penalty: Annotated[float, typer.Option(help="A score is log-probability over length^penalty.")] = 1.0,
    groups: Annotated[int, typer.Option(help="Beams in so many groups that should differ.")] = 1,
    diversity: Annotated[float, typer.Option(help="How much the groups should differ.")] = 0.0,
    coverage_penalty: Annotated[float, typer.Option(help="What it costs to leave parts of the text unread.")] = 0.0,
    no_repeat: NoRepeat = 0,
    repetition_penalty: Penalty = 1.0,
    temperature: Annotated[float, typer.Option(help="Above 0, draw instead of search.")] = 0.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    seed: Seed = None,
    engine: Engine = "auto",
    int8: Int8 = False,
    as_json: Json = False,
) -> None:
    """Translate a text, or every line of standard input, however many there are.

    Several translations of a text stand on lines of their own, after their score and a tab.
    """
    import clearhead

    loaded = clearhead.load(model, engine, int8)
    searching = {
        "n_best": n_best,
        "length_penalty": length_penalty,
        "beam_groups": groups,
        "diversity_penalty": diversity,
        "coverage_penalty": coverage_penalty,
    }
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    rules = {"no_repeat_ngram": no_repeat, "repetition_penalty": repetition_penalty}
    chosen = (1 if temperature else max(4, n_best)) if beams is None else beams
    translator = loaded.translator(notes(), beam_width=chosen, return_logprobs=as_json, **searching, **drawing, **rules)
    sources = [text] if text is not None else read_lines()
    if as_json:
        asked = list(sources)
        print_json([_record(*each) for each in zip(asked, translator.stream(asked), strict=True)])
        return
    with counting("lines", shown=text is None) as count:
        for found in translator.stream(sources, 1) if _typed(text) else translator.stream(sources):
            for each in found:
                sys.stdout.write(f"{each.text}\n" if n_best == 1 else f"{each.score:.4f}\t{each.text}\n")
            count()


def _typed(given: str | None) -> bool:
    """Whether somebody types the lines: then each is answered at once."""
    return given is None and sys.stdin.isatty()


def _record(source: str, found: Sequence[Candidate]) -> dict[str, Any]:
    several = [{"translation": each.text, "score": each.score} for each in found]
    return {"text": source, **several[0], "others": several[1:]}


def generate(
    model: ModelPath,
    prompt: Annotated[str, typer.Argument(help="What the text begins with.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to write.")] = 200,
    temperature: Annotated[float | None, typer.Option(help="0 = always the likeliest; 0.8 unless said.")] = None,
    beams: Beams = None,
    no_repeat: NoRepeat = 0,
    repetition_penalty: Penalty = 1.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this; may be given several times.")] = None,
    cache: Annotated[int | None, typer.Option(help="Tokens that are looked back at: memory of one size.")] = None,
    seed: Seed = None,
    engine: Engine = "auto",
    int8: Int8 = False,
    as_json: Json = False,
) -> None:
    """Write a text that goes on from a prompt."""
    import clearhead

    drawn = (0.0 if beams and beams > 1 else 0.8) if temperature is None else temperature
    settings: dict[str, Any] = {
        "temperature": drawn,
        "beam_width": 1 if beams is None else beams,
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


def embed(
    model: ModelPath,
    item: Annotated[
        str | None, typer.Argument(help="A text, or the path of an image; without it, the lines of standard input.")
    ] = None,
    as_json: Json = False,
) -> None:
    """A text or an image as one vector: the mean of what the model makes of its tokens or patches.

    Each vector is a line of numbers.
    """
    import clearhead

    loaded = clearhead.load(model)
    items = [item] if item is not None else read_lines()
    if as_json:
        asked = list(items)
        vectors = loaded.embed(asked).tolist()
        print_json([{"item": each, "vector": vector} for each, vector in zip(asked, vectors, strict=True)])
        return
    with counting("lines", shown=item is None) as count:
        for vector in loaded.embed_each(items, 1) if _typed(item) else loaded.embed_each(items):
            sys.stdout.write(" ".join(f"{number:.6g}" for number in vector) + "\n")
            count()
