"""Interpretable units: single numbers, or directions of many, that follow a feature of the text a reader can name.

    rank_units(model, windows(ids, tokens))                   every unit against every feature of the text
    activations(model, (ids,), "decoder.2.hidden", 17)        one unit at every token
    direction(model, windows(ids, tokens), "decoder.2.hidden", "case")

A unit is one entry of a recurrent layer's state, of the inner layer of a feed-forward, or of the output of a block. How
well it follows a feature is their correlation over all tokens, from -1 to 1.

A layer may spread a feature over all its units. The direction that follows it best is a linear map of the units to one
number, fitted by least squares to half of the text and measured on the other half:

    w = (XᵀX + λ I)⁻¹ Xᵀy          X units, y feature, both centred

    B windows, T tokens, U units, F features, N = B × T
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError, nearest
from clearhead.look.probes import capture, probes
from clearhead.look.record import index_range

UNITS = (".cell.hidden", ".cell.memory", ".feed_forward.inner", ".hidden")  # probes whose entries are units
RIDGE = 0.01  # λ, as a share of the mean variance of a unit: keeps the weights of correlated units small

Window = tuple[tuple[Tensor, ...], Mapping[str, Tensor]]  # the inputs of a model; each feature, (B, T)


# --- features of a text, one value for each character ---


def quotes(text: str) -> list[float]:
    """1 inside quotation marks and at the marks."""
    inside, values = False, []
    for character in text:
        mark = character in '"“”'
        values.append(float(inside or mark))
        inside = inside != mark
    return values


def brackets(text: str) -> list[float]:
    """The number of open brackets."""
    steps = ((character in "([{") - (character in ")]}") for character in text)
    depths = accumulate(steps, lambda depth, step: max(depth + step, 0), initial=0)
    return [float(depth) for depth in depths][1:]


def indentation(text: str) -> list[float]:
    """The number of blanks at the beginning of the line."""
    return [float(len(line) - len(line.lstrip(" \t"))) for line in text.splitlines(keepends=True) for _ in line]


def line_position(text: str) -> list[float]:
    """The number of characters of the line before this one."""
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
    """The tokens of a text, which joined give the text -> each feature at the last character of each token, (T,)."""
    if not all(tokens):
        raise ShapeError(f"token {list(tokens).index('')} is empty; give the tokens as they stand in the text")
    last = torch.tensor(list(accumulate(len(token) for token in tokens)), dtype=torch.long) - 1
    text = "".join(tokens)
    return {name: torch.tensor(follow(text), dtype=torch.float64)[last] for name, follow in FEATURES.items()}


def windows(ids: Sequence[int], tokens: Sequence[str], length: int = 256, rows: int = 16) -> Iterator[Window]:
    """A long text in windows of `length` tokens with their features; what is left at the end is dropped."""
    if len(ids) != len(tokens):
        raise ShapeError(f"{len(ids)} ids do not fit {len(tokens)} tokens")
    used = len(ids) // length * length
    if used == 0:
        raise ShapeError(f"a text of {len(ids)} tokens is shorter than one window of {length}; give a longer one")
    read = torch.tensor(ids[:used]).view(-1, length)  # (windows, T)
    known = {name: each[:used].view(-1, length) for name, each in features(tokens).items()}
    for first in range(0, len(read), rows):
        part = slice(first, first + rows)
        yield (read[part],), {name: each[part] for name, each in known.items()}


# --- units ---


@dataclass(frozen=True)
class RankedUnit:
    """How well one unit follows one feature."""

    unit: int
    layer: str  # its probe: decoder.2.feed_forward.inner
    feature: str
    correlation: float  # on the text that it was chosen on
    held_out: float | None = None  # on text that it was not chosen on


def unit_layers(model: nn.Module) -> list[str]:
    """The probes of a model whose entries are units."""
    found = [name for name in probes(model) if name.endswith(UNITS)]
    if not found:
        raise ProbeError("this model has no units: it has neither blocks nor recurrent layers")
    return found


@torch.no_grad()
def activations(model: nn.Module, inputs: Sequence[Tensor], layer: str, unit: int) -> Tensor:
    """One unit of a layer at every token of its stack, (T,), for a batch of one."""
    with capture(model, layer, stop=True) as seen:
        model(*inputs)
    if layer not in unit_layers(model):
        raise ProbeError(f"{layer} has no units; choose from: {', '.join(unit_layers(model))}")
    values = seen[layer][0].cpu()  # (T, U)
    if not 0 <= unit < values.size(-1):
        raise ProbeError(f"{layer} has no unit {unit}; choose from {index_range(values.size(-1))}")
    return values[:, unit]


@torch.no_grad()
def rank_units(
    model: nn.Module, windows: Iterable[Window], layers: Sequence[str] | None = None, count: int = 10
) -> list[RankedUnit]:
    """The units that follow each feature best, up to `count` for each, the best of all first."""
    names = list(layers or unit_layers(model))
    sums: dict[str, _Sums] = {}
    for inputs, known in windows:
        with capture(model, *names, stop=True) as seen:
            model(*inputs)
        values = torch.stack([each.flatten() for each in known.values()])  # (F, N)
        for layer, units in seen.items():
            sums.setdefault(layer, _Sums(list(known))).add(units.flatten(0, 1), values)
    if not sums:
        raise ShapeError("units cannot be ranked without a text; give at least one window")
    return _strongest([each for layer, total in sums.items() for each in _best(total, layer, count)], count)


def rank_held_out(model: nn.Module, read: Sequence[Window], layers: Sequence[str] | None = None) -> list[RankedUnit]:
    """Choose units on every second of some windows, and measure them on the others.

    Of many units one always follows a short text well by chance; only the other half tells.
    """
    ranked = rank_units(model, read[::2], layers)
    return measure_units(model, ranked, read[1::2]) if len(read) > 1 else ranked


@torch.no_grad()
def measure_units(model: nn.Module, ranked: Sequence[RankedUnit], windows: Iterable[Window]) -> list[RankedUnit]:
    """The same units, each with its correlation on these windows as `held_out`; the best there first."""
    sums: dict[str, _Sums] = {}
    for inputs, known in windows:
        with capture(model, *{each.layer for each in ranked}, stop=True) as seen:
            model(*inputs)
        values = torch.stack([each.flatten() for each in known.values()])  # (F, N)
        for layer, units in seen.items():
            sums.setdefault(layer, _Sums(list(known))).add(units.flatten(0, 1), values)
    tables = {layer: dict(zip(total.features, total.correlation(), strict=True)) for layer, total in sums.items()}
    found = [replace(each, held_out=float(tables[each.layer][each.feature][each.unit])) for each in ranked]
    return sorted(found, key=lambda each: -abs(each.held_out or 0.0))


def _best(total: _Sums, layer: str, count: int) -> Iterator[RankedUnit]:
    for feature, correlation in zip(total.features, total.correlation(), strict=True):
        order = correlation.abs().argsort(descending=True, stable=True)[:count].tolist()
        yield from (RankedUnit(unit, layer, feature, float(correlation[unit])) for unit in order if correlation[unit])


def _strongest(ranked: list[RankedUnit], count: int) -> list[RankedUnit]:
    kept: list[RankedUnit] = []
    seen: Counter[str] = Counter()
    for each in sorted(ranked, key=lambda one: -abs(one.correlation)):
        seen[each.feature] += 1
        if seen[each.feature] <= count:
            kept.append(each)
    return kept


class _Sums:
    """Running sums for the correlations of all units of a layer with all features."""

    def __init__(self, features: list[str]):
        self.features, self.count = features, 0
        self.x = self.xx = self.y = self.yy = self.yx = torch.zeros((), dtype=torch.float64)

    def add(self, units: Tensor, values: Tensor) -> None:
        """N more tokens: units (N, U), values (F, N)."""
        x, y = units.cpu().double(), values.double()
        self.count += len(x)
        self.x, self.xx = self.x + x.sum(0), self.xx + (x * x).sum(0)  # (U,)
        self.y, self.yy = self.y + y.sum(1), self.yy + (y * y).sum(1)  # (F,)
        self.yx = self.yx + y @ x  # (F, U)

    def correlation(self) -> Tensor:
        """(F, U): 0 for what is constant."""
        covariance = self.yx - torch.outer(self.y, self.x) / self.count
        spread = torch.outer(_spread(self.y, self.yy, self.count), _spread(self.x, self.xx, self.count))
        return (covariance / spread.masked_fill(spread == 0, 1.0)).masked_fill(spread == 0, 0.0)


def _spread(total: Tensor, squares: Tensor, count: int) -> Tensor:
    """√ Σ (x - mean)²; exactly 0 where only rounding errors are left."""
    around = squares - total**2 / count
    return around.masked_fill(around <= 1e-12 * squares, 0.0).sqrt()


# --- directions ---


@dataclass(frozen=True, eq=False)
class Direction:
    """A linear map from the units of a layer to one feature."""

    layer: str
    feature: str
    weights: Tensor  # (U,)
    constant: float
    correlation: float  # with the feature, on text that it was not fitted to

    @torch.no_grad()
    def read(self, model: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
        """The predicted feature at each token of a batch: (B, T)."""
        with capture(model, self.layer, stop=True) as seen:
            model(*inputs)
        return seen[self.layer].cpu().double() @ self.weights + self.constant


@torch.no_grad()
def direction(model: nn.Module, windows: Iterable[Window], layer: str, feature: str) -> Direction:
    """Fit to the first, third, … batch of windows, and measure on the second, fourth, …"""
    if layer not in unit_layers(model):
        raise ProbeError(f"{layer} has no units; {nearest(layer, unit_layers(model))}")
    halves = (_Moments(), _Moments())
    for number, (inputs, known) in enumerate(windows):
        if feature not in known:
            raise ProbeError(f"the windows have no feature {feature}; {nearest(feature, known)}")
        with capture(model, layer, stop=True) as seen:
            model(*inputs)
        halves[number % 2].add(seen[layer].flatten(0, 1), known[feature].flatten())
    fitted, held_out = halves
    if held_out.count == 0:
        raise ShapeError("a direction is fitted to one half of the windows and measured on the other; give two or more")
    weights = fitted.least_squares()
    constant = float(fitted.y - fitted.x @ weights) / fitted.count
    return Direction(layer, feature, weights, constant, held_out.correlation(weights))


class _Moments:
    """Running sums for means, variances and correlations."""

    def __init__(self) -> None:
        self.count = 0
        self.x = self.xx = self.xy = self.y = self.yy = torch.zeros((), dtype=torch.float64)

    def add(self, units: Tensor, values: Tensor) -> None:
        """N more tokens: units (N, U), values (N,)."""
        x, y = units.cpu().double(), values.double()
        self.count += len(x)
        self.x, self.xx, self.xy = self.x + x.sum(0), self.xx + x.T @ x, self.xy + y @ x  # (U,), (U, U), (U,)
        self.y, self.yy = self.y + y.sum(), self.yy + y @ y

    def least_squares(self) -> Tensor:
        """The weights w (U,)."""
        covariance, shared = self._centred()
        ridge = RIDGE * covariance.diagonal().mean() * torch.eye(len(shared), dtype=shared.dtype)
        weights: Tensor = torch.linalg.solve(covariance + ridge, shared)
        return weights

    def correlation(self, weights: Tensor) -> float:
        """Of X w with y; 0 where either is constant."""
        covariance, shared = self._centred()
        spread = (weights @ covariance @ weights) * (self.yy - self.y**2 / self.count)
        return float(weights @ shared / spread.sqrt()) if spread > 0 else 0.0

    def _centred(self) -> tuple[Tensor, Tensor]:
        """XᵀX (U, U) and Xᵀy (U,) of the centred units and feature."""
        return self.xx - torch.outer(self.x, self.x) / self.count, self.xy - self.x * self.y / self.count
