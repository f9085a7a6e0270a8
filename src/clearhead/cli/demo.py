"""`clearhead demo`: train a small translator before your eyes, use it, and see what it looks at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.output import Json, console, print_json
from clearhead.cli.steps import show_steps

if TYPE_CHECKING:
    from clearhead.api import Model

# What lets a model of this size learn the built-in pairs in a minute and a half on two cores.
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
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/demo-TIME unless said.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Only show attention by hand (--out saves an SVG).")] = False,
    as_json: Json = False,
) -> None:
    """Train a small translator in under two minutes, and look inside it."""
    if steps:
        show_steps(out, as_json)
    else:
        _train_and_use(out or Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}", as_json)


def _train_and_use(place: Path, as_json: bool) -> None:
    import clearhead
    from clearhead import config
    from clearhead.cli.train import Display
    from clearhead.train.start import begin

    screen = console(stderr=as_json)
    screen.print("Training a translator, English to Spanish, on the 50,000 sentence pairs that come with Clearhead.\n")
    chosen = config.override(config.defaults("translate"), SETTINGS)
    with Display(silent=as_json) as display:
        display.saying_how_to_resume(place)
        found = begin(chosen, place, "clearhead demo", display.listener())
    model = clearhead.load(place)
    translations = {sentence: model.translate(sentence) for sentence in SENTENCES}
    figure = place / "cross-attention.svg"
    save_cross_attention(model, SENTENCES[1], translations[SENTENCES[1]], figure)
    scores = {score.name: score.value for score in found.scores}
    if as_json:
        print_json({"run": str(place), "scores": scores, "translations": translations, "figure": str(figure)})
        return
    exact = scores["exact match"]
    screen.print(f"\n{exact:.1%} of the held-out sentences are translated exactly as in the reference.\n")
    for source, target in translations.items():
        screen.print(f"  {source}\n  → {target}\n")
    screen.print(f"Which English words it looked at for each Spanish one: {figure}\n", soft_wrap=True)
    screen.print("What to type next", style="bold")
    screen.print(f'  clearhead translate {place} "the little girl is reading a book"', soft_wrap=True)
    screen.print("  clearhead train translate --data your-pairs.tsv")
    screen.print("  clearhead train lm --data your-book.txt")


def save_cross_attention(model: Model, source: str, target: str, path: Path) -> None:
    """A heatmap of the last layer's cross-attention, averaged over its heads."""
    from clearhead.look import heatmap

    seen = model.look(source, target).attention["decoder.cross"]
    weights = seen.weights[-1].mean(0)  # (T, S); row t is what was looked at to write token t
    heatmap(weights, seen.rows, seen.columns, title="cross-attention, last layer").save(path)
