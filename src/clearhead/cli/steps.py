"""`clearhead demo --steps`: attention on one sentence, every number small enough to check on paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli.output import console, print_json, save_svg

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

# "The animal didn't cross the street because it was too tired" (Brown): which word does "it" look at?
# The vectors and matrices are set by hand, so that the meaning of every number is known; a model learns its own.
FEATURES = ("living", "place", "action", "points back")
SENTENCE: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("the", (0, 0, 0, 0)),
    ("animal", (2, 0, 0, 0)),
    ("didn't", (0, 0, 1, 0)),
    ("cross", (0, 0.5, 2, 0)),
    ("the", (0, 0, 0, 0)),
    ("street", (0, 2, 0, 0)),
    ("because", (0, 0, 0, 0)),
    ("it", (0, 0, 0, 2)),
    ("was", (0, 0, 1, 0)),
    ("too", (0, 0, 0, 0)),
    ("tired", (1, 0, 0.5, 0)),
)
# Row: what a word is. Column: what it then looks for. A word that points back looks for something living.
QUERY_MATRIX = ((0, 0, 1, 0), (0, 0, 1, 0), (1, 1, 0, 0), (2, 0, 0, 0))
ASKED = "it"


def show_steps(out: Path | None, as_json: bool) -> None:
    """Queries, keys, values, scores, weights, output; saved as an SVG picture if `out` is given."""
    import torch

    from clearhead.look.views.steps import attention_steps
    from clearhead.nn import attention

    words = [word for word, _ in SENTENCE]
    x = torch.tensor([vector for _, vector in SENTENCE])  # (T, 4)
    q, k, v = x @ torch.tensor(QUERY_MATRIX, dtype=x.dtype), x, x
    asked = words.index(ASKED)
    steps = attention_steps(q[asked], k, v)
    _, weights = attention(q, k, v)  # (T, T)
    if as_json:
        recorded = [{"name": s.name, "equation": s.equation, "value": s.value.tolist()} for s in steps]
        print_json({"words": words, "query": ASKED, "steps": recorded, "weights": weights.tolist()})
        return
    screen = console(record=out is not None)
    _print_steps(screen, words, x[asked], q[asked], {step.name: step for step in steps})
    _print_weights(screen, words, weights)
    if out is not None:
        save_svg(screen, out, title="clearhead demo --steps")


def _print_steps(out: Console, words: list[str], vector: Tensor, query: Tensor, steps: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    out.print(Text(f'Attention, step by step: what does "{ASKED}" look at?', style="bold"))
    out.print(f"\n  {' '.join(words)}\n")
    out.print(f"Each word is a vector of {len(FEATURES)} numbers: {', '.join(FEATURES)}.")
    out.print(f'The vector of "{ASKED}" is x = {_row(vector)}.')
    out.print(f"Its query q = x W_Q = {_row(query)} asks for something {FEATURES[int(query.argmax())]}.")
    out.print("Keys and values are here the vectors themselves.")
    columns = [Column(title, justify="right") for title in ("key = value", "1 score", "2 scale", "3 softmax")]
    table = Table("word", *columns, "", box=box.SIMPLE_HEAD, pad_edge=False)
    for j, (word, key) in enumerate(SENTENCE):
        score, scaled, weight = (float(steps[name].value[j]) for name in ("score", "scale", "softmax"))
        bar = Text("█" * round(weight * 20), style="cyan")
        table.add_row(word, _row(key), f"{score:.1f}", f"{scaled:.1f}", f"{weight:.2f}", bar)
    out.print(table)
    out.print(f"4 weight and 5 sum: z = Σ a_j v_j = {_row(steps['sum'].value)}")
    strongest = words[int(steps["softmax"].value.argmax())]
    out.print(f'"{ASKED}" looked mostly at "{strongest}", and its new vector is mostly {FEATURES[0]}.\n')


def _print_weights(out: Console, words: list[str], weights: Tensor) -> None:
    """All queries at once: softmax(Q Kᵀ / √d_k), one row for each word."""
    from rich.text import Text

    out.print(Text("All words at once: each row is a query and sums to 1", style="bold"))
    width = max(len(word) for word in words)
    out.print(" " * (width + 1) + " ".join(f"{word if len(word) < 6 else word[:4] + '…':>5}" for word in words))
    for word, row in zip(words, weights.tolist(), strict=True):
        line = Text(f"{word:>{width}} ")
        for weight in row:
            line.append(f"{weight:5.2f}", style=f"on {_shade(weight)}" if weight > 0.12 else "")
            line.append(" ")
        out.print(line)
    out.print(Text("\nWhat to type next", style="bold"))
    out.print("  clearhead data check PATH         what is in your file, and how to train on it")
    out.print("  clearhead config show translate   every setting and what it means")
    out.print("  clearhead bench core              how fast this machine is")


def _row(numbers: Any) -> str:
    return "(" + ", ".join(f"{round(float(number), 2):g}" for number in numbers) + ")"


def _shade(weight: float) -> str:
    """A blue that deepens with the weight."""
    return f"rgb({int(60 - 40 * weight)},{int(100 - 20 * weight)},{int(120 + 100 * weight)})"
