"""`clearhead chat MODEL`: a conversation, in the form that the model was trained with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from clearhead.cli.common import CacheType, Engine, Int8, Json, ModelPath, Quantise, print_json, with_search_options

END = ("/exit", "/quit")


@with_search_options
def chat(
    model: ModelPath,
    search: dict[str, Any],
    message: Annotated[
        str | None, typer.Argument(help="One message to answer; without it, every line of standard input is one.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="What the model is told about itself before the chat.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 = greedy.")] = 0.7,
    engine: Engine = "auto",
    int8: Int8 = False,
    quantise: Quantise = None,
    cache_type: CacheType = None,
    as_json: Json = False,
) -> None:
    """Chat with a language model. Ctrl-C stops an answer; Ctrl-D or /exit ends the chat."""
    import clearhead

    loaded = clearhead.load(model, engine, int8, quantise=quantise, cache_type=cache_type)
    loaded.require("chat")
    search |= {"max_tokens": max_tokens, "temperature": temperature}
    history = [{"role": "system", "content": system}] if system else []
    for line in _lines() if message is None else [message]:
        history.append({"role": "user", "content": line})
        answer = _answer(loaded.chat(history, **search), silent=as_json)
        history.append({"role": "assistant", "content": answer})
    if as_json:
        print_json({"messages": history})


def _lines() -> Iterator[str]:
    """What the user says, until the end of the input or /exit."""
    asks = sys.stdin.isatty()
    while True:
        if asks:
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line or line.strip() in END:
            return
        if line.strip():
            yield line.strip()


def _answer(pieces: Iterator[str], silent: bool) -> str:
    """Print an answer as it comes; on a terminal Ctrl-C ends it early, and what was said stays in the history."""
    said: list[str] = []
    try:
        for piece in pieces:
            said.append(piece)
            if not silent:
                sys.stdout.write(piece)
                sys.stdout.flush()
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
    if not silent:
        sys.stdout.write("\n")
    return "".join(said).strip()
