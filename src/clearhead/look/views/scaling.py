"""What 1 / √d_k does before training.

The entries of a query and a key have variance 1, so the variance of q · k is d_k. Without the scale, the softmax of
large scores gives nearly all the weight to one key, where its gradient nearly vanishes: attention is decided before it
has learned, and learns slowly. With the scale the variance is 1 for every size.

    D key size (d_k), S keys, N queries
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.render.figure import COLOURS, SLIDE, Figure, panels
from clearhead.look.view import VIEWS, Model, View, ViewOptions
from clearhead.nn.attention import softmax
from clearhead.nn.scores import Score, dot, scaled_dot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

FORMAT = "clearhead-scaling-1"
SHOWN = {"variance": "variance of scores", "largest": "largest weight", "gradient": "gradient"}
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Sharpness:
    """Attention at initialisation with keys of one size, averaged over random queries."""

    size: int  # d_k
    variance: float  # of the scores
    largest: float  # weight of a query; 1 / S if it looks at all keys alike
    evenness: float  # entropy of its weights over log S: 1 = all keys alike, 0 = one key has all
    gradient: float  # length of ∂ weights / ∂ scores: how much the weights can learn


@VIEWS.register("scaling")
@dataclass(frozen=True)
class Scaling(View):
    """What 1/√d_k does before training."""

    page = "scaling"

    keys: int
    scaled: list[Sharpness]
    plain: list[Sharpness]

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> Scaling:  # noqa: ARG003 - queries and keys are random
        return scaling()

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    def show(self, console: Console) -> None:
        console.print(f"largest weight of a query over {self.keys} keys")
        console.print("  d_k     q · k   q · k / √d_k")
        for plain, scaled in zip(self.plain, self.scaled, strict=True):
            console.print(f"{plain.size:5}  {plain.largest:8.3f}  {scaled.largest:8.3f}")

    def figure(self, width: float = SLIDE) -> Figure:
        """The same queries and keys with the scale and without it, against d_k."""
        with panels(len(SHOWN), width, f"attention over {self.keys} keys before training") as (fig, plots):
            for axes, (name, label) in zip(plots, SHOWN.items(), strict=True):
                self._draw(axes, name)
                axes.set_title(label)
            plots[0].set_yscale("log", base=10)
            plots[0].yaxis.set_major_formatter("{x:g}")
            handles, labels = plots[0].get_legend_handles_labels()
            fig.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        return Figure(fig)

    def _draw(self, axes: Axes, name: str) -> None:
        for each, label, marker, colour in (
            (self.plain, "q · k", "o", COLOURS[4]),
            (self.scaled, "q · k / √d_k", "s", COLOURS[0]),
        ):
            values = [getattr(one, name) for one in each]
            axes.plot([one.size for one in each], values, label=label, marker=marker, color=colour)
        axes.set_xscale("log", base=2)
        sizes = [one.size for one in self.plain]
        few = sizes[:: max(1, len(sizes) // 4)]
        axes.set_xticks(few, [str(size) for size in few])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("d_k")
        axes.grid(alpha=0.25)


def scaling(sizes: Sequence[int] = SIZES, keys: int = 32, queries: int = 512, seed: int = 0) -> Scaling:
    """Draw queries and keys of each size from the normal distribution, and attend with both scores."""
    if keys < 2:
        raise ShapeError(f"with keys={keys} every query looks at the same key; choose at least 2")
    draws = [_draw(size, keys, queries, seed) for size in sizes]
    return Scaling(
        keys, scaled=[sharpness(q, k, scaled_dot) for q, k in draws], plain=[sharpness(q, k, dot) for q, k in draws]
    )


def sharpness(q: Tensor, k: Tensor, score: Score) -> Sharpness:
    """q (N, D), k (N, S, D): each query has its own keys."""
    scores = score(q.unsqueeze(1), k).squeeze(1)  # (N, S)
    weights = softmax(scores)
    entropy = torch.special.entr(weights).sum(-1)  # (N,)
    # ∂ a_i / ∂ s_j = a_i (1[i = j] - a_j)
    jacobian = torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)  # (N, S, S)
    return Sharpness(
        size=q.size(-1),
        variance=float(scores.var()),
        largest=float(weights.amax(-1).mean()),
        evenness=float(entropy.mean()) / math.log(k.size(-2)),
        gradient=float(jacobian.norm(dim=(-2, -1)).mean()),
    )


def _draw(size: int, keys: int, queries: int, seed: int) -> tuple[Tensor, Tensor]:
    """Queries (N, D) and keys (N, S, D) from the standard normal distribution."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(queries, size, generator=random), torch.randn(queries, keys, size, generator=random)
