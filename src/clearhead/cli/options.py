"""Arguments and options that several verbs share."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

ModelPath = Annotated[str, typer.Argument(help="A run directory, or a name that `clearhead models` lists.")]
Beams = Annotated[int | None, typer.Option(help="Beam width; 1 = greedy.")]
Groups = Annotated[int, typer.Option(help="Divide the beams into this many groups that differ.")]
Diversity = Annotated[float, typer.Option(help="Penalty for a token that an earlier group has chosen.")]
LengthPenalty = Annotated[float, typer.Option(help="A score is log-probability / length^penalty.")]
NoRepeat = Annotated[int, typer.Option(help="Never repeat an n-gram of this many tokens; 0 = may repeat.")]
Penalty = Annotated[
    float, typer.Option("--repetition-penalty", help="Above 1, tokens that were already used become less likely.")
]
TopK = Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens.")]
TopP = Annotated[float, typer.Option(help="Sample from the fewest tokens that together have probability p.")]
MinP = Annotated[float, typer.Option(help="Sample from tokens at least this likely, relative to the likeliest.")]
Seed = Annotated[int | None, typer.Option(help="Random seed: the same seed gives the same text.")]
Engine = Annotated[str, typer.Option(help="Inference engine: auto, torch, compiled or ct2.")]
Int8 = Annotated[bool, typer.Option("--int8", help="8-bit weights: less memory and time, a little less quality.")]


def is_typed(item: str | None) -> bool:
    """Whether somebody types the lines at a terminal: then each is answered at once."""
    return item is None and sys.stdin.isatty()
