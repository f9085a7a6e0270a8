"""`clearhead words MODEL neighbours WORD` and `clearhead words MODEL analogy A B C`."""

from __future__ import annotations

from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, print_json
from clearhead.errors import ConfigError, nearest

QUESTIONS = {"neighbours": ("WORD",), "analogy": ("A", "B", "C")}


def words(
    model: ModelPath,
    question: Annotated[str, typer.Argument(help="neighbours or analogy.")],
    asked: Annotated[list[str] | None, typer.Argument(metavar="WORD", help="One word; for A - B + C three.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Words to list.")] = 10,
    measure: Annotated[str, typer.Option(help="cosine, or dot: long vectors count more.")] = "cosine",
    as_json: Json = False,
) -> None:
    """Print the words nearest to a word, or to king - man + woman."""
    given = asked or []
    _check(question, given)
    import clearhead

    loaded = clearhead.load(model)
    if question == "neighbours":
        found = loaded.neighbours(given[0], count, measure)
    else:
        found = loaded.analogy(given[0], given[1], given[2], count, measure)
    if as_json:
        answer = [{"word": word, measure: near} for word, near in found]
        print_json({"question": question, "words": given, "found": answer})
        return
    for word, near in found:
        typer.echo(f"{near:7.3f}  {word}")


def _check(question: str, given: list[str]) -> None:
    """One of the questions, with as many words as it takes."""
    if question not in QUESTIONS:
        raise ConfigError(f"unknown question {question}; {nearest(question, QUESTIONS)}")
    wanted = QUESTIONS[question]
    if len(given) != len(wanted):
        usage = f"clearhead words MODEL {question} {' '.join(wanted)}"
        raise ConfigError(f"{question} takes {len(wanted)} and not {len(given)} words: {usage}")
