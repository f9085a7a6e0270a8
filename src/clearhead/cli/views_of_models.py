"""The views of `clearhead look` that are about a model and its training rather than about one input."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rich.console import Console
from torch import Tensor

from clearhead.cli.views import Asked, Shown
from clearhead.errors import ConfigError, nearest
from clearhead.look import figures
from clearhead.look.figures.heads import KINDS
from clearhead.look.figures.importance import by_kind
from clearhead.look.terminal import show_bars, show_matrix

BATCHES = 8  # of the data, to measure how important heads are
NEIGHBOURS = 8  # of each word on a map


def positions(asked: Asked) -> Shown:
    """The first position scheme of the model."""
    from clearhead.look.positions import positions

    name, found = next(iter(positions(asked.model.network).items()))
    title = f"{found.scheme} positions ({name})"

    def on_screen(screen: Console) -> None:
        products = found.by_distance.mean(0)[:24]
        show_bars(
            screen, products, [str(distance) for distance in range(len(products))], f"{title}: product by distance"
        )

    return Shown(found.to_json, partial(figures.positions, found, title=title, width=asked.width), on_screen)


def patches(asked: Asked) -> Shown:
    """The principal components of the patch embedding."""
    from clearhead.look.patches import patch_components

    found = patch_components(asked.model.network)
    title = "principal components of the patch embedding"
    draw = partial(figures.components, found.components, found.shares, title=title, width=asked.width)

    def on_screen(screen: Console) -> None:
        shares = found.shares[:12]
        show_bars(screen, shares, [str(number) for number in range(len(shares))], title)

    return Shown(found.to_json, draw, on_screen)


def words(asked: Asked) -> Shown:
    """The words of the text and those nearest to each, on a plane."""
    from clearhead.look.words import and_neighbours, word_map

    model, wanted = asked.model, asked.text.split()
    near = {word: model.neighbours(word, NEIGHBOURS) for word in wanted}  # says so if it is no model of words
    vectors, names = model.vectors()
    rows = and_neighbours(vectors, names, wanted, NEIGHBOURS)
    method: Any = asked.method or "pca"
    found = word_map(vectors[rows], [names[row] for row in rows], method)

    def on_screen(screen: Console) -> None:
        for word, others in near.items():
            screen.print(f"{word}: {', '.join(other for other, _ in others)}", soft_wrap=True)

    return Shown(found.to_json, partial(figures.words, found, marked=wanted, width=asked.width), on_screen)


def importance(asked: Asked) -> Shown:
    """How much the loss on some held-out examples rises without each head, or feels of it."""
    from clearhead.look.importance import importance_by_ablation, importance_by_gradient

    methods = {"ablation": importance_by_ablation, "gradient": importance_by_gradient}
    method = asked.method or "gradient"
    if method not in methods:
        raise ConfigError(f"unknown method {method}; {nearest(method, methods)}")
    batches, loss = asked.model.validation_batches(asked.data, BATCHES)
    found = methods[method](asked.model.network, batches, loss)

    def on_screen(screen: Console) -> None:
        for kind, table in by_kind(found.heads).items():
            show_heads(screen, table.clamp(min=0), KINDS.get(kind, kind))

    return Shown(found.to_json, partial(figures.importance, found, width=asked.width), on_screen)


def induction(asked: Asked) -> Shown:
    """Random words, or letters, twice: which heads look back at what followed."""
    from clearhead.look.induction import induction, must_look_back

    must_look_back(asked.model.network)  # what reads no text has no words to draw from either
    found = induction(asked.model.network, asked.model.tokenizer.word_ids())
    title = f"induction score of each head (chance {found.chance:.3f})"
    rows, columns = _counted("layer", found.induction.size(0)), _counted("head", found.induction.size(1))
    draw = partial(figures.heatmap, found.induction, rows, columns, title=title, label="weight", width=asked.width)
    return Shown(found.to_json, draw, lambda screen: show_heads(screen, found.induction, title))


def history(asked: Asked) -> Shown:
    """One example at every evaluation; the last layer unless said."""
    from clearhead.look.attention_log import read_attention
    from clearhead.look.history import read_history

    found = read_history(asked.model.run.path / "attention", read_attention)
    kind = asked.kind or figures.first_kind(found)
    layer = len(found.weights.get(kind, [])) - 1 if asked.layer is None else asked.layer
    draw = partial(figures.history, found, layer, asked.head, kind, width=asked.width)

    def on_screen(screen: Console) -> None:
        sure = found.largest(kind).flatten(1)  # (N, layers × H)
        heads = found.weights[kind][0].size(1)
        names = [f"{number // heads}.{number % heads}" for number in range(sure.size(1))]
        title = f"largest weight of a query, on average: {KINDS.get(kind, kind)}, layer.head"
        show_matrix(screen, sure, [f"step {step:,}" for step in found.steps], names, title)

    return Shown(found.to_json, draw, on_screen)


def scaling(asked: Asked) -> Shown:
    """Random queries and keys, with the scale and without it; the model is not asked."""
    from clearhead.look.scaling import scaling

    found = scaling()

    def on_screen(screen: Console) -> None:
        screen.print(f"largest weight of a query over {found.keys} keys")
        screen.print("  d_k     q · k   q · k / √d_k")
        for plain, scaled in zip(found.plain, found.scaled, strict=True):
            screen.print(f"{plain.size:5}  {plain.largest:8.3f}  {scaled.largest:8.3f}")

    return Shown(found.to_json, partial(figures.scaling, found, width=asked.width), on_screen)


def show_heads(screen: Console, table: Tensor, title: str) -> None:
    """table (layers, H), none negative."""
    show_matrix(screen, table, _counted("layer", table.size(0)), _counted("head", table.size(1)), title)


def _counted(what: str, count: int) -> list[str]:
    return [f"{what} {number}" for number in range(count)]


VIEWS: dict[str, Callable[[Asked], Shown]] = {
    "positions": positions,
    "patches": patches,
    "words": words,
    "importance": importance,
    "induction": induction,
    "history": history,
    "scaling": scaling,
}
