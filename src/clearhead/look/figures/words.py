"""Words on a plane: each at its point, its name where no other name stands."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from matplotlib.axes import Axes

from clearhead.look.figures.edges import cells, readable, size_of
from clearhead.look.figures.sheet import COLOURS, GREY, INK, SLIDE, Figure, letter_size, sheet, tallest
from clearhead.look.words import WordMap

METHODS = {"pca": "principal components", "tsne": "t-SNE"}
Box = tuple[float, float, float, float]  # left, bottom, right, top, in points


def words(found: WordMap, *, marked: Collection[str] = (), title: str = "", width: float = SLIDE) -> Figure:
    """A point for each word; marked words are named first and strongly, the others as far as names do not overlap."""
    with sheet(width, tallest(width, 1.0)) as page:
        axes = page.add_subplot()
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=GREY, alpha=0.4)
        axes.set_title(title or f"{len(found.words)} words, {METHODS.get(found.method, found.method)}", loc="left")
        colours = [COLOURS[4] if word in marked else COLOURS[0] for word in found.words]
        x, y = found.points.T.tolist()
        axes.scatter(x, y, s=letter_size(width) ** 2 / 12, c=colours, linewidths=0, alpha=0.8)
        axes.margins(0.08, 0.06)
        _write_names(axes, found, marked, letter_size(width) * 0.85)
    return Figure(page)


def _write_names(axes: Axes, found: WordMap, marked: Collection[str], size: float) -> None:
    width, height = size_of(axes)  # and lets everything find its place
    scale = 72 / axes.figure.dpi
    left, bottom = axes.transAxes.transform((0, 0)) * scale
    inside = (left, bottom, left + width, bottom + height)
    places = axes.transData.transform(found.points.double().numpy()) * scale  # (V, 2)
    points = [(x - size / 6, y - size / 6, x + size / 6, y + size / 6) for x, y in places.tolist()]
    taken: list[Box] = []
    order = sorted(range(len(found.words)), key=lambda place: found.words[place] not in marked)
    for number in order:
        word, strong = readable(found.words[number]), found.words[number] in marked
        x, y = places[number].tolist()
        others = taken + [box for place, box in enumerate(points) if place != number]
        for dx, dy, box in _around(x, y, 0.6 * size * cells(word), size):
            if strong or (_within(box, inside) and not any(_overlap(box, other) for other in others)):
                taken.append(box)
                style: dict[str, Any] = {"fontsize": size, "color": COLOURS[4] if strong else INK, "va": "bottom"}
                point = tuple(found.points[number].tolist())
                axes.annotate(word, point, (dx, dy), textcoords="offset points", ha="left", zorder=3, **style)
                break


def _around(x: float, y: float, wide: float, high: float) -> Iterator[tuple[float, float, Box]]:
    """Right of the point, left of it, above and below: how far the name is moved, and the room it takes."""
    gap = high / 3
    for dx, dy in ((gap, -high / 2), (-wide - gap, -high / 2), (-wide / 2, gap), (-wide / 2, -high - gap)):
        yield dx, dy, (x + dx, y + dy, x + dx + wide, y + dy + high)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _within(one: Box, other: Box) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one[2] <= other[2] and one[3] <= other[3]
