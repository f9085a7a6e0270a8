"""Word vectors on a plane: words that are used alike should lie side by side.

pca     the two directions of largest variance: preserves distances as well as a plane can
tsne    near words stay near; the size of groups and the distance between them mean nothing

V words, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError, nearest
from clearhead.look.record import rounded
from clearhead.look.render.figure import COLOURS, GREY, INK, SLIDE, Figure, axes_size, font_size, max_height, new_figure
from clearhead.look.render.labels import text_cells, token_label
from clearhead.look.view import VIEWS, Model, View, ViewOptions
from clearhead.look.views.patches import principal_components
from clearhead.models.word2vec import neighbours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

FORMAT = "clearhead-words-1"
NEIGHBOURS = 8  # of each word on the map
PERPLEXITY = 30.0  # of t-SNE, if there are enough words
METHOD_NAMES = {"pca": "principal components", "tsne": "t-SNE"}

Method = Literal["pca", "tsne"]
Box = tuple[float, float, float, float]  # left, bottom, right, top, in points


@VIEWS.register("words")
@dataclass(frozen=True, eq=False)
class WordMap(View):
    """Word vectors on a plane; the text is the words."""

    words: list[str]
    points: Tensor  # (V, 2)
    method: str
    neighbours: dict[str, list[tuple[str, float]]] = field(default_factory=dict)  # of the words that were given

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> WordMap:
        """The words of the text and the nearest words of each."""
        given = options.input_for(model).split()
        near = {word: model.neighbours(word, NEIGHBOURS) for word in given}  # refuses a model without word vectors
        ids = model.tokenizer.word_ids()
        vectors, words = model.network.vectors[ids], model.tokenizer.pieces(ids)
        rows = with_neighbours(vectors, words, given, NEIGHBOURS)
        method = cast(Method, options.method or "pca")
        return replace(word_map(vectors[rows], [words[row] for row in rows], method), neighbours=near)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "method": self.method, "words": self.words, "points": rounded(self.points)}

    def show(self, console: Console) -> None:
        for word, others in self.neighbours.items():
            console.print(f"{word}: {', '.join(other for other, _ in others)}", soft_wrap=True)

    def figure(self, width: float = SLIDE) -> Figure:
        """A point for each word; the given words are labelled in colour, others if their label overlaps no other."""
        with new_figure(width, max_height(width, 1.0)) as fig:
            axes = fig.add_subplot()
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set(color=GREY, alpha=0.4)
            axes.set_title(f"{len(self.words)} words, {METHOD_NAMES.get(self.method, self.method)}", loc="left")
            colours = [COLOURS[4] if word in self.neighbours else COLOURS[0] for word in self.words]
            x, y = self.points.T.tolist()
            axes.scatter(x, y, s=font_size(width) ** 2 / 12, c=colours, linewidths=0, alpha=0.8)
            axes.margins(0.08, 0.06)
            _write_labels(axes, self, font_size(width) * 0.85)
        return Figure(fig)


def _write_labels(axes: Axes, found: WordMap, size: float) -> None:
    width, height = axes_size(axes)  # computes the layout, too
    scale = 72 / axes.figure.dpi
    left, bottom = axes.transAxes.transform((0, 0)) * scale
    inside = (left, bottom, left + width, bottom + height)
    places = axes.transData.transform(found.points.double().numpy()) * scale  # (V, 2)
    points = [(x - size / 6, y - size / 6, x + size / 6, y + size / 6) for x, y in places.tolist()]
    taken: list[Box] = []
    order = sorted(range(len(found.words)), key=lambda place: found.words[place] not in found.neighbours)
    for number in order:
        label, marked = token_label(found.words[number]), found.words[number] in found.neighbours
        x, y = places[number].tolist()
        others = taken + [box for place, box in enumerate(points) if place != number]
        for dx, dy, box in _around(x, y, 0.6 * size * text_cells(label), size):
            if marked or (_within(box, inside) and not any(_overlap(box, other) for other in others)):
                taken.append(box)
                style: dict[str, Any] = {"fontsize": size, "color": COLOURS[4] if marked else INK, "va": "bottom"}
                point = tuple(found.points[number].tolist())
                axes.annotate(label, point, (dx, dy), textcoords="offset points", ha="left", zorder=3, **style)
                break


def _around(x: float, y: float, wide: float, high: float) -> Iterator[tuple[float, float, Box]]:
    """Right of the point, left of it, above and below: the offset of the label, and its box."""
    gap = high / 3
    for dx, dy in ((gap, -high / 2), (-wide - gap, -high / 2), (-wide / 2, gap), (-wide / 2, -high - gap)):
        yield dx, dy, (x + dx, y + dy, x + dx + wide, y + dy + high)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _within(one: Box, other: Box) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one[2] <= other[2] and one[3] <= other[3]


# --- the map ---


def word_map(vectors: Tensor, words: Sequence[str], method: Method = "pca") -> WordMap:
    """vectors (V, D) and the word of each -> a point for each; deterministic."""
    if method not in METHODS:
        raise ConfigError(f"unknown kind of map {method!r}; {nearest(method, METHODS)}")
    if vectors.dim() != 2 or len(vectors) != len(words):
        raise ShapeError(f"{len(words)} words do not fit vectors of shape {tuple(vectors.shape)}")
    if len(words) < 3:
        raise ShapeError(f"a map of {len(words)} words shows nothing; give it at least 3")
    return WordMap(list(words), METHODS[method](vectors.detach().double()), method)


def with_neighbours(vectors: Tensor, words: Sequence[str], chosen: Sequence[str], count: int = 5) -> list[int]:
    """The rows of some words and of the nearest words of each."""
    row = {word: number for number, word in enumerate(words)}
    near = [[word, *(each for each, _ in neighbours(vectors, words, word, count))] for word in chosen]
    return list(dict.fromkeys(row[word] for group in near for word in group))


def _tsne(vectors: Tensor) -> Tensor:
    """(V, D) -> (V, 2), initialised with the principal components."""
    try:
        from sklearn.manifold import TSNE  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("a t-SNE map needs scikit-learn: pip install 'clearhead[look]'; or choose pca") from None
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    mapped = TSNE(init="pca", metric="cosine", perplexity=perplexity, random_state=0).fit_transform(vectors.numpy())
    return torch.from_numpy(mapped).double()


METHODS: dict[str, Callable[[Tensor], Tensor]] = {  # (V, D) -> (V, 2)
    "pca": lambda vectors: principal_components(vectors, 2).project(vectors),
    "tsne": _tsne,
}
