"""The views of `clearhead look`: each makes data, a figure and a small picture for the terminal of what was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from torch import Tensor

import clearhead
from clearhead.errors import ConfigError, ProbeError
from clearhead.look import figures
from clearhead.look.figures.edges import Window, part
from clearhead.look.figures.heads import KINDS
from clearhead.look.terminal import show_bars, show_matrix

if TYPE_CHECKING:
    from clearhead import Model
    from clearhead.look.figures import Figure
    from clearhead.look.look import Attended, Look

Document = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What the user wants to see, and of what."""

    name: str
    item: str | None = None
    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    query: str | None = None
    target: str | None = None
    generate: bool = False
    beams: int = 4
    unit: str | None = None
    feature: str | None = None
    method: str | None = None
    data: str | None = None
    rows: Window = None
    columns: Window = None
    width: float = figures.SLIDE

    @cached_property
    def model(self) -> Model:
        """The model, loaded."""
        return clearhead.load(self.name)

    @property
    def text(self) -> str:
        """What the model is to read."""
        if self.item is None:
            raise ConfigError(f'give a text or an image to look at: clearhead look {self.name} "a text"')
        return self.item

    @cached_property
    def look(self) -> Look:
        """What the model computes for it."""
        return self.model.look(self.text, self.target, generate=self.generate)

    def place(self, words: list[str]) -> int | None:
        """The number of the word that is asked about."""
        if self.query is None or self.query.isdecimal():
            return None if self.query is None else int(self.query)
        if self.query not in words:
            raise ProbeError(f"no query is called {self.query}; choose from: {', '.join(words)}, or a number")
        return words.index(self.query)


@dataclass(frozen=True)
class Shown:
    """One view in the three ways it can be shown; `page` names the interactive view of it and its data."""

    document: Callable[[], Document]
    figure: Callable[[], Figure]
    on_screen: Callable[[Console], None]
    page: tuple[str, Callable[[], Document]] | None = None
    title: str = ""

    def html(self) -> str:
        """One page that needs nothing else."""
        from clearhead.look.html import VIEWS, page

        if self.page is None:
            raise ConfigError(f"this view has no page: choose another ending, or a view of {', '.join(VIEWS)}")
        view, data = self.page
        return page(view, data(), self.title)


def show(view: str, asked: Asked) -> Shown:
    """The view of this name."""
    from clearhead.cli.views_of_cells import cells
    from clearhead.cli.views_of_models import VIEWS

    return {**OF_ONE_INPUT, "cells": cells, **VIEWS}[view](asked)


# --- attention ---


def heads(asked: Asked) -> Shown:
    """Heads as matrices."""
    return _of_heads(
        asked,
        lambda: figures.heads(
            asked.look, asked.layer, asked.head, asked.kind, rows=asked.rows, columns=asked.columns, width=asked.width
        ),
    )


def lines(asked: Asked) -> Shown:
    """Heads as lines."""
    seen = asked.look.pick(asked.kind, asked.layer, asked.head)
    layer, query = _layer(asked, seen), asked.place(seen.rows)
    windows = {"rows": asked.rows, "columns": asked.columns}
    return _of_heads(
        asked,
        lambda: figures.lines(asked.look, layer, asked.head, asked.kind, query=query, width=asked.width, **windows),
    )


def _of_heads(asked: Asked, figure: Callable[[], Figure]) -> Shown:
    look = asked.look
    look.pick(asked.kind, asked.layer, asked.head)
    return Shown(
        look.to_json, figure, partial(_show_head, asked), ("heads", look.to_json), f"{look.model}: {look.text}"
    )


def _show_head(asked: Asked, screen: Console) -> None:
    """One head, or the mean of a layer's heads; the last layer unless one is asked for."""
    look = asked.look
    seen = look.pick(asked.kind, asked.layer, asked.head)
    layer, kind = _layer(asked, seen), look.kind(asked.kind)
    weights = seen.weights[layer]
    weights = weights.mean(0) if asked.head is None else weights[asked.head]
    whose = "mean of its heads" if asked.head is None else f"head {asked.head}"
    title = f"{KINDS.get(kind, kind)}, layer {layer}, {whose}"
    rows, columns = part(asked.rows, len(seen.rows), "rows"), part(asked.columns, len(seen.columns), "columns")
    visible = seen.visible[rows, columns]
    show_matrix(screen, weights[rows, columns], seen.rows[rows], seen.columns[columns], title, visible)
    screen.print(f"→ {look.output}", soft_wrap=True)


def _layer(asked: Asked, seen: Attended) -> int:
    return seen.layers - 1 if asked.layer is None else asked.layer


def steps(asked: Asked) -> Shown:
    """One query; the last layer, the first head and the word in the middle unless said."""
    seen = asked.look.pick(asked.kind, asked.layer, asked.head)
    query = asked.place(seen.rows)
    chosen = len(seen.rows) // 2 if query is None else query
    found = asked.look.steps(_layer(asked, seen), asked.head or 0, chosen, asked.kind)

    def on_screen(screen: Console) -> None:
        screen.print(f"{found.kind}, layer {found.layer}, head {found.head}, query {found.rows[found.query]}\n")
        for number, step in enumerate(found.steps, start=1):
            screen.print(f"{number:>2} {step.name:<15} {step.equation}", soft_wrap=True)
            screen.print(f"   {_numbers(step.value):<48} {step.file}:{step.line}", style="dim", soft_wrap=True)

    return Shown(
        found.to_json,
        lambda: figures.steps(found, width=asked.width),
        on_screen,
        ("steps", found.to_json),
        f"{asked.look.model}: {asked.look.text}",
    )


def _numbers(value: Tensor) -> str:
    """The first few, and how many there are."""
    few = ", ".join(f"{number:.2f}" for number in value.flatten()[:5].tolist())
    return f"({few}{', …' if value.numel() > 5 else ''})  {' × '.join(map(str, value.shape))}"


# --- what an answer came from ---


def rollout(asked: Asked) -> Shown:
    """All layers multiplied, heads by mean, max or min."""
    from clearhead.look.rollout import rollout

    kind, weights = _self_attention(asked)
    method: Any = asked.method or "mean"
    after = [rollout(weights[: layer + 1], method) for layer in range(len(weights))]  # each (T, T)
    names = [f"layer {layer}" for layer in range(len(after))]
    return _shares(asked, kind, after[-1], "rollout", dict(zip(names, after, strict=True)))


def flow(asked: Asked) -> Shown:
    """What could run through all layers; of an image only what runs to its class token."""
    from clearhead.look.flow import flow

    kind, weights = _self_attention(asked)
    method: Any = asked.method or "mean"
    if asked.look.grid is None:
        shares = flow(weights, method)
        return _shares(asked, kind, shares, "flow", {"flow": shares})
    row = flow(weights, method, tokens=[0])
    return _shares(asked, kind, row.expand(row.size(1), -1), "flow", {"flow": row.expand(row.size(1), -1)})


def _self_attention(asked: Asked) -> tuple[str, list[Tensor]]:
    """Of the encoder where there is one: what can be followed through layers."""
    look = asked.look
    kind = asked.kind or next((name for name in ("encoder.self", "decoder.self") if name in look.attention), None)
    return look.kind(kind), look.pick(kind).weights


def _shares(asked: Asked, kind: str, shares: Tensor, name: str, maps: dict[str, Tensor]) -> Shown:
    """shares (T, T): over the image where there is one, otherwise between words."""
    look = asked.look
    words = look.attention[kind].rows
    page = ("patches", look.to_json)
    document = partial(_document, name, {"kind": kind, "tokens": words, "shares": shares.tolist()})
    if look.image is not None and look.grid is not None and kind == "encoder.self":
        from clearhead.look.rollout import over_patches

        over = {key: over_patches(each, look.grid, look.class_token) for key, each in maps.items()}
        title = f"{name}: {look.output}"
        figure = partial(figures.over_image, look.image, over, title=title, width=asked.width)
        return Shown(document, figure, partial(_show_patches, list(over.values())[-1], title), page, title)
    rows, columns = part(asked.rows, len(words), "rows"), part(asked.columns, len(words), "columns")
    shown, title = shares[rows, columns], f"{name} of {KINDS.get(kind, kind)}"
    draw = partial(figures.heatmap, shown, words[rows], words[columns], title=title, label="share", width=asked.width)
    return Shown(
        document, draw, lambda screen: show_matrix(screen, shown, words[rows], words[columns], title), page, title
    )


def _document(name: str, numbers: Document) -> Document:
    return {"format": f"clearhead-{name}-1", **numbers}


def _show_patches(shares: Tensor, title: str, screen: Console) -> None:
    rows, columns = shares.shape
    names = [[str(number) for number in range(1, count + 1)] for count in (rows, columns)]
    show_matrix(screen, shares, names[0], names[1], title)


def relevance(asked: Asked) -> Shown:
    """Of the answer at a query's position, the last unless said."""
    from clearhead.look.relevance import relevance

    look = asked.look
    position = _position(asked)
    found = relevance(look.network, look.inputs, position)
    own = {}
    for kind, table in found.tables.items():
        about = 0 if kind == "encoder.self" and look.class_token else position
        if kind != "encoder.self" or "decoder.cross" not in found.tables:
            own[kind] = table[0, about].detach()
    return _owed(asked, found.to_json, own, "relevance")


def gradients(asked: Asked) -> Shown:
    """Integrated gradients of the answer at a query's position."""
    from clearhead.look.gradients import integrated_gradients

    look = asked.look
    found = integrated_gradients(look.network, look.inputs, _position(asked))
    own = {f"{stack}.self": values[0].detach() for stack, values in found.tokens.items()}
    return _owed(asked, found.to_json, own, "integrated gradients")


def _position(asked: Asked) -> int:
    """Among the answers of the model; the last one unless said."""
    kind = asked.look.kind(asked.kind)
    place = asked.place(asked.look.attention[kind].rows)
    return -1 if place is None else place


def _owed(asked: Asked, document: Callable[[], Document], values: dict[str, Tensor], name: str) -> Shown:
    """Numbers (T,) over what was read: of the image where there is one, otherwise of the first text that there is."""
    look = asked.look
    kind = next(name for name in ("decoder.cross", "encoder.self", "decoder.self") if name in values)
    own, words = values[kind], look.attention[kind].columns
    title = f"{name}: {look.output}"
    if look.image is not None and look.grid is not None and kind != "decoder.self":
        over = own[int(look.class_token) :].clamp(min=0).view(look.grid)
        draw = partial(figures.over_image, look.image, {name: over}, title=title, width=asked.width)
        return Shown(document, draw, partial(_show_patches, over, title), None, title)
    columns = part(asked.columns, len(words), "columns")
    text = partial(figures.coloured_text, words[columns], own[columns], title=title, label=name, width=asked.width)
    return Shown(document, text, lambda screen: show_bars(screen, own[columns], words[columns], title), None, title)


# --- other views of one input ---


def beam(asked: Asked) -> Shown:
    """The tree of a beam search."""
    tree = asked.model.beam_tree(asked.text, asked.beams)

    def on_screen(screen: Console) -> None:
        ends = sorted((node for node in tree.nodes if node.state == "finished"), key=lambda node: -node.score)
        screen.print(f"{len(tree.nodes) - 1} texts were considered; those that ended, best first:", soft_wrap=True)
        for node in ends or [tree.nodes[tree.best]]:
            text = " ".join(each.token for each in tree.path(node.id))
            screen.print(f"{node.score:8.3f}  {text}", soft_wrap=True, style="bold" if node.id == tree.best else None)

    draw = partial(figures.beam, tree, steps=asked.columns, width=asked.width)
    return Shown(tree.to_json, draw, on_screen, ("beam", tree.to_json), f"{asked.name}: {tree.source}")


def lens(asked: Asked) -> Shown:
    """What would be answered after each layer."""
    from clearhead.look.lens import logit_lens

    look = asked.look
    found = logit_lens(look.network, look.inputs)
    tokens = look.tokens.get("decoder", look.tokens.get("encoder", []))
    count = found.logits.size(1)
    words = tokens[-count:] if len(tokens) >= count and count > 1 else [look.output]
    draw = partial(figures.lens, found, words, look.choices, columns=asked.columns, width=asked.width)

    def on_screen(screen: Console) -> None:
        names = ["embedded", *(f"layer {layer}" for layer in range(len(found.logits) - 1))]
        show_matrix(screen, found.probability, names, words, "probability of the final answer after each layer")

    return Shown(partial(found.to_json, words, look.choices), draw, on_screen)


OF_ONE_INPUT: dict[str, Callable[[Asked], Shown]] = {
    "heads": heads,
    "lines": lines,
    "steps": steps,
    "rollout": rollout,
    "flow": flow,
    "relevance": relevance,
    "gradients": gradients,
    "beam": beam,
    "lens": lens,
}
