"""Searching for interpretable cells: units of a network that follow something a reader of the text can name.

    found = rank_units(model, windows(ids, tokens))              every unit against every feature of the text
    cells(model, (ids,), tokens, "decoder.2.feed_forward.inner", 17)      the text coloured by one of them

A unit is one number of a recurrent layer's state, of the inside of a feed-forward, or of what a block writes. How well
it follows a feature is their correlation over all tokens, from -1 to 1.

    B windows, T tokens, U units, F features, N = B × T
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.capture import capture
from clearhead.look.look import span
from clearhead.look.probes import probes
from clearhead.look.storing import rounded

FORMAT = "clearhead-cells-1"
UNITS = (".cell.hidden", ".cell.memory", ".feed_forward.inner", ".hidden")  # probes whose numbers are units

Window = tuple[tuple[Tensor, ...], Mapping[str, Tensor]]  # what a model is called with; each feature, (B, T)


# --- what a text has, character by character ---


def quotes(text: str) -> list[float]:
    """1 inside quotation marks, these included."""
    inside, values = False, []
    for character in text:
        mark = character in '"“”'
        values.append(float(inside or mark))
        inside = inside != mark
    return values


def brackets(text: str) -> list[float]:
    """How many brackets are open."""
    steps = ((character in "([{") - (character in ")]}") for character in text)
    depths = accumulate(steps, lambda depth, step: max(depth + step, 0), initial=0)
    return [float(depth) for depth in depths][1:]


def indentation(text: str) -> list[float]:
    """How many blanks the line begins with."""
    return [float(len(line) - len(line.lstrip(" \t"))) for line in text.splitlines(keepends=True) for _ in line]


def line_position(text: str) -> list[float]:
    """How many characters of the line have been read, this one not included."""
    return [float(place) for line in text.splitlines(keepends=True) for place in range(len(line))]


def upper_case(text: str) -> list[float]:
    """1 at a capital letter."""
    return [float(character.isupper()) for character in text]


FEATURES: dict[str, Callable[[str], list[float]]] = {
    "quotes": quotes,
    "brackets": brackets,
    "indentation": indentation,
    "line position": line_position,
    "case": upper_case,
}


def features(tokens: Sequence[str]) -> dict[str, Tensor]:
    """The tokens of a text, which joined are the text -> each feature at the last character of each token, (T,)."""
    if not all(tokens):
        raise ShapeError(f"token {list(tokens).index('')} is empty; give the text as its tokens stand in it")
    last = torch.tensor(list(accumulate(len(token) for token in tokens)), dtype=torch.long) - 1
    text = "".join(tokens)
    return {name: torch.tensor(follow(text), dtype=torch.float64)[last] for name, follow in FEATURES.items()}


def windows(ids: Sequence[int], tokens: Sequence[str], length: int = 256, rows: int = 16) -> Iterator[Window]:
    """A long text in pieces that a language model can read; features know what came before. The rest is left out."""
    if len(ids) != len(tokens):
        raise ShapeError(f"{len(ids)} ids do not fit {len(tokens)} tokens")
    whole = len(ids) // length * length
    if whole == 0:
        raise ShapeError(f"a text of {len(ids)} tokens is shorter than one window of {length}; take a longer one")
    read = torch.tensor(ids[:whole]).view(-1, length)  # (windows, T)
    known = {name: each[:whole].view(-1, length) for name, each in features(tokens).items()}
    for first in range(0, len(read), rows):
        part = slice(first, first + rows)
        yield (read[part],), {name: each[part] for name, each in known.items()}


# --- units ---


@dataclass(frozen=True)
class Ranked:
    """How well one unit follows one feature."""

    unit: int
    layer: str  # its probe: decoder.2.feed_forward.inner
    feature: str
    correlation: float


@dataclass(frozen=True, eq=False)
class Cells:
    """A text coloured by one unit."""

    tokens: list[str]
    layer: str
    unit: int
    values: Tensor  # (T,)
    ranking: list[Ranked]

    def to_json(self) -> dict[str, Any]:
        """As the views read it."""
        return {
            "format": FORMAT,
            "tokens": self.tokens,
            "layer": self.layer,
            "unit": self.unit,
            "values": rounded(self.values),
            "ranking": [asdict(each) for each in self.ranking],
        }


def unit_layers(model: nn.Module) -> list[str]:
    """The probes of a model whose numbers are units."""
    found = [name for name in probes(model) if name.endswith(UNITS)]
    if not found:
        raise ProbeError("this model has no units to look at: it has neither blocks nor recurrent layers")
    return found


@torch.no_grad()
def cells(
    model: nn.Module,
    inputs: Sequence[Tensor],
    tokens: Sequence[str],
    layer: str,
    unit: int,
    ranking: Sequence[Ranked] = (),
) -> Cells:
    """Colour the tokens that the layer's stack reads, a batch of one, by one of its units."""
    with capture(model, layer, stop=True) as seen:
        model(*inputs)
    if layer not in unit_layers(model):
        raise ProbeError(f"{layer} names no layer of units; choose from: {', '.join(unit_layers(model))}")
    values = seen[layer][0].cpu()  # (T, U)
    if not 0 <= unit < values.size(-1):
        raise ProbeError(f"{layer} has no unit {unit}; choose from {span(values.size(-1))}")
    if len(values) != len(tokens):
        raise ShapeError(f"{layer} read {len(values)} tokens and {len(tokens)} were named")
    return Cells(list(tokens), layer, unit, values[:, unit], list(ranking))


@torch.no_grad()
def rank_units(
    model: nn.Module, windows: Iterable[Window], layers: Sequence[str] | None = None, count: int = 10
) -> list[Ranked]:
    """The units that follow each feature best, up to `count` for each, the best of all first."""
    names = list(layers or unit_layers(model))
    sums: dict[str, _Sums] = {}
    for inputs, known in windows:
        with capture(model, *names, stop=True) as seen:
            model(*inputs)
        values = torch.stack([each.flatten() for each in known.values()])  # (F, N)
        for layer, activations in seen.items():
            sums.setdefault(layer, _Sums(list(known))).add(activations.flatten(0, 1), values)
    if not sums:
        raise ShapeError("no unit can be ranked without a text; give at least one window")
    return _strongest([each for layer, total in sums.items() for each in _best(total, layer, count)], count)


def _best(total: _Sums, layer: str, count: int) -> Iterator[Ranked]:
    """The units of one layer that follow each feature best."""
    for feature, correlation in zip(total.features, total.correlation(), strict=True):
        order = correlation.abs().argsort(descending=True, stable=True)[:count].tolist()
        yield from (Ranked(unit, layer, feature, float(correlation[unit])) for unit in order if correlation[unit])


def _strongest(ranked: list[Ranked], count: int) -> list[Ranked]:
    """The first `count` of each feature, in the order of their strength."""
    kept: list[Ranked] = []
    seen: Counter[str] = Counter()
    for each in sorted(ranked, key=lambda one: -abs(one.correlation)):
        seen[each.feature] += 1
        if seen[each.feature] <= count:
            kept.append(each)
    return kept


class _Sums:
    """What the correlations of all units of a layer with all features need to know of any number of tokens."""

    def __init__(self, features: list[str]):
        self.features, self.count = features, 0
        self.x = self.xx = self.y = self.yy = self.yx = torch.zeros((), dtype=torch.float64)

    def add(self, activations: Tensor, values: Tensor) -> None:
        """N more tokens: activations (N, U), values (F, N)."""
        x, y = activations.cpu().double(), values.double()
        self.count += len(x)
        self.x, self.xx = self.x + x.sum(0), self.xx + (x * x).sum(0)  # (U,)
        self.y, self.yy = self.y + y.sum(1), self.yy + (y * y).sum(1)  # (F,)
        self.yx = self.yx + y @ x  # (F, U)

    def correlation(self) -> Tensor:
        """(F, U): 0 for what never changes."""
        covariance = self.yx - torch.outer(self.y, self.x) / self.count
        spread = torch.outer(_spread(self.y, self.yy, self.count), _spread(self.x, self.xx, self.count))
        return (covariance / spread.masked_fill(spread == 0, 1.0)).masked_fill(spread == 0, 0.0)


def _spread(total: Tensor, squares: Tensor, count: int) -> Tensor:
    """√ Σ (x - mean)²; exactly 0 where nothing but rounding is left."""
    around = squares - total**2 / count
    return around.masked_fill(around <= 1e-12 * squares, 0.0).sqrt()
