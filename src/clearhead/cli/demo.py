"""`clearhead demo`: train a small translator and use it; `clearhead demo --steps`: attention computed by hand."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.common import Json, console, print_json, save_svg

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

    from clearhead import Model
    from clearhead.look.views.steps import Step

# With these settings a model learns the built-in pairs in a minute and a half on two cores.
SETTINGS = (
    "data.validation=0.02",
    "data.batch_tokens=1024",
    "tokenizer.size=3000",
    "model.dim=96",
    "model.layers=1",
    "model.inner=256",
    "model.dropout=0",
    "model.norm=rms",
    "model.positions=rotary",
    "train.optimizer=muon",
    "train.learning_rate=0.008",
    "train.matrix_rate=0.016",
    "train.schedule=linear",
    "train.warmup=0.02",
    "train.label_smoothing=0",
    "train.max_steps=1650",
    "train.max_minutes=1.65",
    "train.beam=1",
    "train.evaluate_every=825",
)
SENTENCES = ("we are eating bread", "she wants to buy the red shoes", "does your sister want to read the new book?")


def demo(
    out: Annotated[Path | None, typer.Option(help="Run directory to create.  [default: runs/demo-TIME]")] = None,
    steps: Annotated[
        bool,
        typer.Option("--steps", help="Show attention computed by hand instead; --out FILE.svg also saves it."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a small translator in two minutes and look inside it."""
    if steps:
        _show_steps(out, as_json)
    else:
        _train_and_use(out or Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}", as_json)


def _train_and_use(run: Path, as_json: bool) -> None:
    import clearhead
    from clearhead.tasks import default_config, override_config
    from clearhead.train.display import Display
    from clearhead.train.start import run_training

    screen = console(stderr=as_json)
    screen.print("Training a translator, English to Spanish, on the 50,000 sentence pairs that come with Clearhead.\n")
    chosen = override_config(default_config("translate"), SETTINGS)
    with Display(run, silent=as_json) as callbacks:
        evaluation = run_training(chosen, run, "clearhead demo", callbacks)
    model = clearhead.load(run)
    translations = {sentence: model.translate(sentence) for sentence in SENTENCES}
    figure = run / "cross-attention.svg"
    _save_cross_attention(model, SENTENCES[1], translations[SENTENCES[1]], figure)
    scores = {score.name: score.value for score in evaluation.scores}
    if as_json:
        print_json({"run": str(run), "scores": scores, "translations": translations, "figure": str(figure)})
        return
    exact = scores["exact match"]
    screen.print(f"\n{exact:.1%} of the held-out sentences are translated exactly as in the reference.\n")
    for source, target in translations.items():
        screen.print(f"  {source}\n  → {target}\n")
    screen.print(f"Which English words it looked at for each Spanish one: {figure}\n", soft_wrap=True)
    screen.print("What to type next", style="bold")
    screen.print(f'  clearhead translate {run} "the little girl is reading a book"', soft_wrap=True)
    screen.print("  clearhead train translate --data your-pairs.tsv")
    screen.print("  clearhead train lm --data your-book.txt")


def _save_cross_attention(model: Model, source: str, target: str, path: Path) -> None:
    """Save a heatmap of the last layer's cross-attention, averaged over its heads."""
    from clearhead.look import heatmap

    seen = model.look(source, target).attention["decoder.cross"]
    weights = seen.weights[-1].mean(0)  # (T, S); row t is what was looked at to write token t
    heatmap(weights, seen.rows, seen.columns, title="cross-attention, last layer").save(path)


# --- attention by hand ---

# "The animal didn't cross the street because it was too tired" (Brown): which word does "it" look at?
# Vectors and matrices are set by hand, so that the meaning of every number is known; a model learns its own.
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
QUERY_WORD = "it"


def _show_steps(out: Path | None, as_json: bool) -> None:
    """Print queries, keys, values, scores, weights and output; also save them as an SVG if `out` is given."""
    import torch

    from clearhead.look.views.steps import attention_steps
    from clearhead.nn import attention

    words = [word for word, _ in SENTENCE]
    x = torch.tensor([vector for _, vector in SENTENCE])  # (T, 4)
    q, k, v = x @ torch.tensor(QUERY_MATRIX, dtype=x.dtype), x, x
    row = words.index(QUERY_WORD)
    steps = attention_steps(q[row], k, v)
    _, weights = attention(q, k, v)  # (T, T)
    if as_json:
        recorded = [{"name": s.name, "equation": s.equation, "value": s.value.tolist()} for s in steps]
        print_json({"words": words, "query": QUERY_WORD, "steps": recorded, "weights": weights.tolist()})
        return
    screen = console(record=out is not None)
    _print_steps(screen, words, x[row], q[row], {step.name: step for step in steps})
    _print_weights(screen, words, weights)
    if out is not None:
        save_svg(screen, out, title="clearhead demo --steps")


def _print_steps(out: Console, words: list[str], vector: Tensor, query: Tensor, steps: dict[str, Step]) -> None:
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    out.print(Text(f'Attention, step by step: what does "{QUERY_WORD}" look at?', style="bold"))
    out.print(f"\n  {' '.join(words)}\n")
    out.print(f"Each word is a vector of {len(FEATURES)} numbers: {', '.join(FEATURES)}.")
    out.print(f'The vector of "{QUERY_WORD}" is x = {_row(vector)}.')
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
    out.print(f'"{QUERY_WORD}" looked mostly at "{strongest}", and its new vector is mostly {FEATURES[0]}.\n')


def _print_weights(out: Console, words: list[str], weights: Tensor) -> None:
    """All queries at once: softmax(Q Kᵀ / √d_k), one row per word."""
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


def _row(numbers: Iterable[float] | Tensor) -> str:
    return "(" + ", ".join(f"{round(float(number), 2):g}" for number in numbers) + ")"


def _shade(weight: float) -> str:
    """A blue that darkens with the weight."""
    return f"rgb({int(60 - 40 * weight)},{int(100 - 20 * weight)},{int(120 + 100 * weight)})"
