"""`clearhead look --view cells`: a text coloured by one unit of a model, or by the direction of many."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from rich.console import Console

from clearhead.cli.output import print_table
from clearhead.cli.views import Asked, Document, Shown
from clearhead.errors import ConfigError, ProbeError, nearest
from clearhead.look import figures
from clearhead.look.terminal import show_heights

if TYPE_CHECKING:
    from clearhead.look.cells import Ranked
    from clearhead.look.directions import Direction

LONG = 50_000  # letters on which units are ranked
METHODS = ("unit", "direction")

Tokens = tuple[list[int], list[str]]  # ids, and the piece of text of each


def cells(asked: Asked) -> Shown:
    """By the unit asked for, or the one that follows a feature best; by all units of a layer with `direction`."""
    from clearhead.look.cells import FEATURES

    if asked.feature is not None and asked.feature not in FEATURES:
        raise ConfigError(f"unknown feature {asked.feature}; choose from: {', '.join(FEATURES)}")
    method = asked.method or "unit"
    if method not in METHODS:
        raise ConfigError(f"unknown method {method}; {nearest(method, METHODS)}")
    return _by_unit(asked) if method == "unit" else _by_direction(asked)


def _by_unit(asked: Asked) -> Shown:
    from clearhead.look.cells import cells

    ids, tokens = _tokens(asked, asked.text)
    ranking = [] if asked.unit is not None else _ranked(asked)
    layer, unit = _unit(asked, ranking)
    found = cells(asked.model.network, (torch.tensor([ids]),), tokens, layer, unit, ranking)
    follows = f", follows {ranking[0].feature}: correlation {ranking[0].correlation:.2f}" if ranking else ""
    title = f"{layer}, unit {unit}{follows}"

    def on_screen(screen: Console) -> None:
        show_heights(screen, tokens, found.values, title)
        if ranking:
            rows = [(each.layer, each.unit, each.feature, f"{each.correlation:.3f}") for each in ranking[:10]]
            print_table("", ("layer", "unit", "feature", "correlation"), rows, folds=0)

    draw = partial(figures.coloured_text, tokens, found.values, title=title, label="activation", width=asked.width)
    return Shown(found.to_json, draw, on_screen, ("cells", found.to_json), f"{asked.name}: {title}")


def _by_direction(asked: Asked) -> Shown:
    ids, tokens = _tokens(asked, asked.text)
    found = _best_direction(asked)
    values = found.read(asked.model.network, (torch.tensor([ids]),))[0]
    title = f"{found.layer}, direction of {found.feature}: correlation {found.correlation:.2f}"

    def document() -> Document:
        about = {"layer": found.layer, "feature": found.feature, "correlation": found.correlation}
        return {"format": "clearhead-direction-1", **about, "tokens": tokens, "values": values.tolist()}

    draw = partial(figures.coloured_text, tokens, values, title=title, label=found.feature, width=asked.width)
    return Shown(document, draw, lambda screen: show_heights(screen, tokens, values, title))


def _best_direction(asked: Asked) -> Direction:
    """Of all layers of states, the one from which the feature can be read best."""
    from clearhead.look.cells import unit_layers, windows
    from clearhead.look.directions import direction

    if asked.feature is None:
        raise ConfigError('a direction follows something: say what, --feature "line position" for one')
    ids, tokens = _measured(asked)
    read = list(windows(ids, tokens, max(1, min(256, len(ids) // 4)), rows=2))
    network = asked.model.network
    layers = [name for name in unit_layers(network) if name.endswith(".hidden")]
    return max((direction(network, read, layer, asked.feature) for layer in layers), key=lambda each: each.correlation)


def _ranked(asked: Asked) -> list[Ranked]:
    """Units that follow the feature, or any; the best first."""
    from clearhead.look.cells import rank_units, windows

    ids, tokens = _measured(asked)
    found = rank_units(asked.model.network, windows(ids, tokens, max(1, min(256, len(ids)))))
    return [each for each in found if asked.feature in (None, each.feature)]


def _measured(asked: Asked) -> Tokens:
    """What units are compared with: the held-out part of some data, or the text that is shown."""
    if asked.data is None:
        return _tokens(asked, asked.text)
    from clearhead.data import read

    return _tokens(asked, "".join(read(asked.data, kind="text").validation)[:LONG])


def _tokens(asked: Asked, text: str) -> Tokens:
    vocabulary = asked.model.tokenizer
    ids = vocabulary.encode(text)
    return ids, [vocabulary.decode([number]) for number in ids]


def _unit(asked: Asked, ranking: list[Ranked]) -> tuple[str, int]:
    if asked.unit is None:
        if not ranking:
            raise ProbeError("no unit follows this text: give a longer one, or --unit LAYER:NUMBER")
        return ranking[0].layer, ranking[0].unit
    layer, _, number = asked.unit.rpartition(":")
    if not layer or not number.isdecimal():
        raise ConfigError(f"--unit {asked.unit} names no unit: write LAYER:NUMBER, decoder.1.hidden:17 for one")
    return layer, int(number)
