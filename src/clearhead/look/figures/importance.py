"""How important each head is: a matrix of layers and heads for each kind of attention.

H heads
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.figures.edges import name_edges
from clearhead.look.figures.heads import KINDS
from clearhead.look.figures.matrix import Scale, draw_key, draw_matrix, write_numbers
from clearhead.look.figures.sheet import SLIDE, Figure, panels
from clearhead.look.importance import Importance

METHODS = {"ablation": "rise of the loss without the head", "gradient": "what the loss feels of the head"}


def importance(found: Importance, *, title: str = "", width: float = SLIDE) -> Figure:
    """All kinds on one scale of colours; red is what the model needs, blue what it would be better without."""
    tables = by_kind(found.heads)
    if not tables:
        raise ShapeError("there is no head to draw: rank those of a model with attention")
    scale = Scale.of(*tables.values())
    with panels(len(tables), width, title or METHODS.get(found.method, found.method)) as (page, places):
        for axes, (kind, table) in zip(places, tables.items(), strict=True):
            image = draw_matrix(axes, table, scale)
            axes.set_title(KINDS.get(kind, kind))
            name_edges(axes, _numbers(table.size(0)), _numbers(table.size(1)), top=False)
            axes.set(xlabel="head", ylabel="layer")
        for axes, table in zip(places, tables.values(), strict=True):
            write_numbers(axes, table, scale)
        draw_key(page, image, places, "")
    return Figure(page)


def by_kind(heads: dict[str, Tensor]) -> dict[str, Tensor]:
    """encoder.0.self (H,), encoder.1.self (H,), … -> encoder.self (layers, H), and so on."""
    rows: dict[str, list[Tensor]] = {}
    for name, row in heads.items():
        stack, _, part = name.split(".")
        rows.setdefault(f"{stack}.{part}", []).append(row)
    return {kind: torch.stack(layers) for kind, layers in rows.items()}


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]
