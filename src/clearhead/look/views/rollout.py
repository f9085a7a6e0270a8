"""Attention rollout: how much of each input token is in each token of the last layer, if only attention mixed tokens.

    Â_l = r I + (1 - r) A_l                  the residual connection keeps a share r of every token
    R   = Â_L … Â_2 Â_1                      row i: where token i of the last layer comes from

    H heads, T tokens

(Abnar and Zuidema, 2020.) The functions take any leading dimensions, so a batch is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError, nearest
from clearhead.look.record import KINDS, LookRecord
from clearhead.look.render.figure import SLIDE, Figure, fit_title
from clearhead.look.render.image import image_overlays
from clearhead.look.render.matrix import Window, heatmap, window_slice
from clearhead.look.render.terminal import show_matrix
from clearhead.look.view import VIEWS, LookView, ViewOptions

if TYPE_CHECKING:
    from rich.console import Console

HeadFusion = Literal["mean", "max", "min"]

FUSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda weights: weights.mean(-3),
    "max": lambda weights: weights.amax(-3),
    "min": lambda weights: weights.amin(-3),
}


def rollout(weights: Sequence[Tensor], heads: HeadFusion = "mean", residual: float = 0.5) -> Tensor:
    """The weights (…, H, T, T) of every layer, first to last -> (…, T, T), each row sums to 1."""
    mixed = layer_mixtures(weights, heads, residual)
    rolled = mixed[0]
    for mixture in mixed[1:]:
        rolled = mixture @ rolled
    return rolled


def layer_mixtures(weights: Sequence[Tensor], heads: HeadFusion = "mean", residual: float = 0.5) -> list[Tensor]:
    """Â of every layer, (…, T, T): its heads fused, and the residual connection mixed in."""
    if not 0 <= residual <= 1:
        raise ConfigError(f"residual={residual:g} is not a share: choose a number from 0 to 1")
    if not weights:
        raise ShapeError("there are no layers to roll out; look at a model with attention")
    for layer, each in enumerate(weights):
        if each.dim() < 3 or each.size(-1) != each.size(-2) or each.size(-1) != weights[0].size(-1):
            raise ShapeError(
                f"layer {layer} has weights of shape {tuple(each.shape)} where (heads, tokens, tokens) is needed; "
                "roll out self-attention"
            )
    identity = torch.eye(weights[0].size(-1), dtype=weights[0].dtype, device=weights[0].device)
    return [residual * identity + (1 - residual) * fuse_heads(each, heads) for each in weights]


def fuse_heads(weights: Tensor, heads: HeadFusion = "mean") -> Tensor:
    """(…, H, T, S) -> (…, T, S): one table for all heads, its rows scaled to a sum of 1."""
    if heads not in FUSIONS:
        raise ConfigError(f"unknown way to fuse heads {heads!r}; {nearest(heads, FUSIONS)}")
    fused = FUSIONS[heads](weights)
    return fused / fused.sum(-1, keepdim=True).clamp(min=torch.finfo(fused.dtype).tiny)


def patch_shares(shares: Tensor, grid: tuple[int, int], class_token: bool = True) -> Tensor:
    """(…, T, T), from a rollout, a flow or a relevance -> (…, rows, columns): the share of each patch in the answer.

    The row of the class token stands for the image, or the mean of all rows if there is none; the map sums to 1.
    """
    rows, columns = grid
    if shares.size(-1) < rows * columns + class_token:
        raise ShapeError(f"a grid of {rows} × {columns} patches does not fit {shares.size(-1)} tokens")
    seen = shares[..., 0, -rows * columns :] if class_token else shares.mean(-2)
    seen = seen / seen.sum(-1, keepdim=True).clamp(min=torch.finfo(seen.dtype).tiny)
    return seen.reshape(*seen.shape[:-1], rows, columns)


def share_of_mass(mass: Tensor, marked: Tensor) -> Tensor:
    """mass (…, rows, columns), marked pixels (…, height, width) boolean -> (…): the share of the mass on these.

    The mass of a patch is spread evenly over its pixels, so that a uniform map gives the share of marked pixels.
    """
    (rows, columns), (height, width) = mass.shape[-2:], marked.shape[-2:]
    if height % rows or width % columns:
        raise ShapeError(f"a grid of {rows} × {columns} patches does not fit an image of {height} × {width}")
    squares = (rows, height // rows, columns, width // columns)
    patches = marked.reshape(*marked.shape[:-2], *squares)  # (…, rows, P, columns, P)
    return (mass * patches.to(mass.dtype).mean((-3, -1))).sum((-2, -1))


@VIEWS.register("rollout")
@dataclass(frozen=True, eq=False)
class Rollout(LookView):
    """What each token came from, through all layers."""

    page = "patches"
    name: ClassVar[str] = "rollout"
    label: ClassVar[str] = "share of the input token"  # each row sums to 1

    look: LookRecord
    kind: str
    tables: dict[str, Tensor]  # (T, T) by name: after each layer, the last is the result
    rows: Window = None
    columns: Window = None

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Self:
        kind = self_attention(look, options)
        weights, method = look.pick(kind).weights, head_fusion(options)
        tables = {f"layer {layer}": rollout(weights[: layer + 1], method) for layer in range(len(weights))}
        return cls(look, kind, tables, options.rows, options.columns)

    @property
    def shares(self) -> Tensor:
        """(T, T)."""
        return list(self.tables.values())[-1]

    @property
    def title(self) -> str:
        return f"{self.name}: {self.look.output}" if self.maps else f"{self.name} of {KINDS.get(self.kind, self.kind)}"

    @property
    def maps(self) -> dict[str, Tensor]:
        """(rows, columns) of patches by name; none if the model did not read an image."""
        look = self.look
        if look.image is None or look.grid is None or self.kind != "encoder.self":
            return {}
        return {name: patch_shares(each, look.grid, look.class_token) for name, each in self.tables.items()}

    def to_json(self) -> dict[str, Any]:
        tokens = self.look.attention[self.kind].rows
        shares = self.shares.tolist()
        return {"format": f"clearhead-{self.name}-1", "kind": self.kind, "tokens": tokens, "shares": shares}

    def page_data(self) -> dict[str, Any]:
        return self.look.to_json()

    def show(self, console: Console) -> None:
        if maps := self.maps:
            show_patches(console, list(maps.values())[-1], self.title)
        else:
            show_matrix(console, *self._window(), self.title)

    def figure(self, width: float = SLIDE) -> Figure:
        """Over the image if there is one, otherwise a matrix of tokens."""
        if self.look.image is not None and (maps := self.maps):
            return image_overlays(self.look.image, maps, title=fit_title(self.title, width), width=width)
        title = fit_title(self.title, width, self.look.caption)
        return heatmap(*self._window(), title=title, label=self.label, width=width)

    def _window(self) -> tuple[Tensor, list[str], list[str]]:
        tokens = self.look.attention[self.kind].rows
        rows = window_slice(self.rows, len(tokens), "rows")
        columns = window_slice(self.columns, len(tokens), "columns")
        return self.shares[rows, columns], tokens[rows], tokens[columns]


def self_attention(look: LookRecord, options: ViewOptions) -> str:
    """The kind of attention that can be followed through layers: by default that of the encoder, if there is one."""
    usual = (name for name in ("encoder.self", "decoder.self") if name in look.attention)
    return look.kind(options.kind or next(usual, None))


def head_fusion(options: ViewOptions) -> HeadFusion:
    """The way to fuse heads; `fuse_heads` refuses what it does not know."""
    return cast(HeadFusion, options.method or "mean")


def show_patches(console: Console, shares: Tensor, title: str) -> None:
    """Print a map (rows, columns) of patches, counted from 1."""
    rows, columns = ([str(number) for number in range(1, count + 1)] for count in shares.shape)
    show_matrix(console, shares, rows, columns, title)
