"""A text coloured by one unit of the network, or by the direction of many, that follows a feature of the text.

T tokens
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.data import read
from clearhead.errors import ConfigError, ProbeError, ShapeError, nearest
from clearhead.look.probes import stacks
from clearhead.look.record import rounded
from clearhead.look.render.figure import SLIDE, Figure, fit_title
from clearhead.look.render.terminal import show_heights, show_table
from clearhead.look.render.text import coloured_text
from clearhead.look.units import (
    FEATURES,
    Direction,
    RankedUnit,
    Window,
    activations,
    direction,
    rank_held_out,
    unit_layers,
    windows,
)
from clearhead.look.view import VIEWS, Model, TextModel, View, ViewOptions

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "clearhead-cells-1"
METHODS = ("unit", "direction")
MAX_CHARACTERS = 50_000  # of a dataset on which units are ranked
WINDOW = 256  # tokens that are read at once
SHOWN = 10  # ranked units in the terminal


@VIEWS.register("cells")
@dataclass(frozen=True, eq=False)
class Cells(View):
    """A text coloured by one unit, and units that follow something in it."""

    page = "cells"

    tokens: list[str]
    layer: str
    unit: int
    values: Tensor  # (T,)
    ranking: list[RankedUnit] = field(default_factory=list)
    model: str = ""

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> View:
        """By the given unit, or the one that follows a feature best; by a direction with `method="direction"`."""
        if options.feature is not None and options.feature not in FEATURES:
            raise ConfigError(f"unknown feature {options.feature}; choose from: {', '.join(FEATURES)}")
        method = options.method or "unit"
        if method not in METHODS:
            raise ConfigError(f"unknown method {method}; {nearest(method, METHODS)}")
        if method == "direction":
            return DirectionCells.compute(model, options)
        ids, tokens = _tokenize(model, options.input_for(model))
        ranking = [] if options.unit is not None else _ranking(model, options)
        layer, unit = _chosen_unit(options, ranking)
        if layer not in _layers(model) and layer in unit_layers(model.network):
            raise ProbeError(f"{layer} reads what is written, and cells colour what is read: choose an encoder layer")
        return cells(model.network, _inputs(model, torch.tensor([ids])), tokens, layer, unit, ranking, model.name)

    @property
    def caption(self) -> str:
        best = self.ranking[0] if self.ranking else None
        follows = f", follows {best.feature}: correlation {_measured(best):.2f}" if best else ""
        return f"{self.layer}, unit {self.unit}{follows}"

    @property
    def title(self) -> str:
        return f"{self.model}: {self.caption}"

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "tokens": self.tokens,
            "layer": self.layer,
            "unit": self.unit,
            "values": rounded(self.values),
            "ranking": [{key: part for key, part in asdict(each).items() if part is not None} for each in self.ranking],
        }

    def show(self, console: Console) -> None:
        show_heights(console, self.tokens, self.values, self.caption)
        if self.ranking:
            rows = [
                (each.layer, each.unit, each.feature, f"{_measured(each):.3f}", f"{each.correlation:.3f}")
                for each in self.ranking[:SHOWN]
            ]
            show_table(console, ("layer", "unit", "feature", "correlation", "where chosen"), rows)

    def figure(self, width: float = SLIDE) -> Figure:
        title = fit_title(self.caption, width, self.model)
        return coloured_text(self.tokens, self.values, title=title, label="activation", width=width)


@dataclass(frozen=True, eq=False)
class DirectionCells(View):
    """A text coloured by the direction that follows a feature best."""

    tokens: list[str]
    direction: Direction
    values: Tensor  # (T,)

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> DirectionCells:
        ids, tokens = _tokenize(model, options.input_for(model))
        found = _best_direction(model, options)
        return cls(tokens, found, found.read(model.network, _inputs(model, torch.tensor([ids])))[0])

    @property
    def title(self) -> str:
        found = self.direction
        return f"{found.layer}, direction of {found.feature}: correlation {found.correlation:.2f}"

    def to_json(self) -> dict[str, Any]:
        found = self.direction
        about = {"layer": found.layer, "feature": found.feature, "correlation": found.correlation}
        return {"format": "clearhead-direction-1", **about, "tokens": self.tokens, "values": self.values.tolist()}

    def show(self, console: Console) -> None:
        show_heights(console, self.tokens, self.values, self.title)

    def figure(self, width: float = SLIDE) -> Figure:
        return coloured_text(self.tokens, self.values, title=self.title, label=self.direction.feature, width=width)


def _measured(unit: RankedUnit) -> float:
    """Its correlation on text that it was not chosen on, where there was enough text for both."""
    return unit.correlation if unit.held_out is None else unit.held_out


def cells(
    network: nn.Module,
    inputs: Sequence[Tensor],
    tokens: Sequence[str],
    layer: str,
    unit: int,
    ranking: Sequence[RankedUnit] = (),
    model: str = "",
) -> Cells:
    """Colour the tokens that the stack of a layer reads, a batch of one, by one of its units."""
    values = activations(network, inputs, layer, unit)
    if len(values) != len(tokens):
        raise ShapeError(f"{layer} read {len(values)} tokens and {len(tokens)} were named")
    return Cells(list(tokens), layer, unit, values, list(ranking), model)


def _ranking(model: Model, options: ViewOptions) -> list[RankedUnit]:
    """The units that follow the feature, or any feature; the best first."""
    ids, tokens = _measured_text(model, options)
    found = rank_text(model, ids, tokens)
    return [each for each in found if options.feature in (None, each.feature)]


def rank_text(model: TextModel, ids: list[int], tokens: list[str]) -> list[RankedUnit]:
    """The units that follow a feature of a text, measured on the half of it that they were not chosen on."""
    length = max(1, min(WINDOW, len(ids) // 4))
    rows = max(1, min(16, len(ids) // length // 4))
    return rank_held_out(model.network, list(_windows(model, ids, tokens, length, rows=rows)), _layers(model))


def _best_direction(model: Model, options: ViewOptions) -> Direction:
    """Of all layers of hidden states, the one from which the feature can be read best."""
    if options.feature is None:
        raise ConfigError('a direction needs a feature to follow, for example --feature "line position"')
    ids, tokens = _measured_text(model, options)
    read_windows = list(_windows(model, ids, tokens, min(WINDOW, len(ids) // 4), rows=2))
    layers = [name for name in _layers(model) if name.endswith(".hidden")]
    found = (direction(model.network, read_windows, layer, options.feature) for layer in layers)
    return max(found, key=lambda each: each.correlation)


def _measured_text(model: Model, options: ViewOptions) -> tuple[list[int], list[str]]:
    """The text on which units are compared with features: held-out text of a dataset, or the text that is shown."""
    if options.data is None:
        return _tokenize(model, options.input_for(model))
    return _tokenize(model, "".join(read(options.data, kind="text").validation)[:MAX_CHARACTERS])


def _windows(model: TextModel, ids: list[int], tokens: list[str], length: int, **rows: int) -> Iterator[Window]:
    for (part,), known in windows(ids, tokens, max(1, length), **rows):
        yield _inputs(model, part), known


def _inputs(model: TextModel, ids: Tensor) -> tuple[Tensor, ...]:
    """What the network reads of texts (B, T); a translator writes nothing but its start token."""
    return (ids, torch.full((len(ids), 1), model.tokenizer.start)) if _translates(model) else (ids,)


def _layers(model: TextModel) -> list[str]:
    """The layers whose units see the text: of a translator those of the encoder."""
    return [name for name in unit_layers(model.network) if not (_translates(model) and name.startswith("decoder"))]


def _translates(model: TextModel) -> bool:
    return {"encoder", "decoder"} <= stacks(model.network).keys()


def _tokenize(model: Model, text: str) -> tuple[list[int], list[str]]:
    ids = model.tokenizer.encode(text)
    pieces = model.tokenizer.pieces(ids)
    decoded = [model.tokenizer.decode([number]) for number in ids]
    return ids, [text or piece for text, piece in zip(decoded, pieces, strict=True)]  # a lone space decodes to nothing


def _chosen_unit(options: ViewOptions, ranking: list[RankedUnit]) -> tuple[str, int]:
    if options.unit is None:
        if not ranking:
            raise ProbeError("no unit follows this text: give a longer one, or --unit LAYER:INDEX")
        return ranking[0].layer, ranking[0].unit
    layer, _, index = options.unit.rpartition(":")
    if not layer or not index.isdecimal():
        raise ConfigError(f"--unit {options.unit} is not a unit: write LAYER:INDEX, for example decoder.1.hidden:17")
    return layer, int(index)
