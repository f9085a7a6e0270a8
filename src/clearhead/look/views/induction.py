"""Induction heads: after `… A B … A`, a head that looks back at B, so that the model can repeat B.

The model reads random tokens twice. Only the first half tells what comes next in the second, so

    induction       weight from each token of the second half to the one that followed it in the first
    previous        weight from each token to the one before it: what an induction head builds on
    repeated        weight from each token of the second half to the same token in the first

and a model with such heads has a lower loss in the second half than in the first.

    B texts, N tokens in each half, H heads

(Olsson et al., 2022.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.probes import capture, probes
from clearhead.look.record import rounded
from clearhead.look.render.figure import SLIDE, Figure, fit_title
from clearhead.look.render.matrix import heatmap
from clearhead.look.render.terminal import head_labels, show_heads
from clearhead.look.view import VIEWS, Model, View, ViewOptions
from clearhead.models.build import Model as CausalModel

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "clearhead-induction-1"


@VIEWS.register("induction")
@dataclass(frozen=True, eq=False)
class Induction(View):
    """Which heads repeat what was read before."""

    page = "induction"

    induction: Tensor  # (layers, H)
    previous: Tensor  # (layers, H)
    repeated: Tensor  # (layers, H)
    chance: float  # the weight if every head looked at all tokens alike
    first: float  # loss of a token in the first half
    second: float  # loss of a token in the second half
    model: str = ""

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> Induction:  # noqa: ARG003 - it needs none
        require_causal_lm(model.network)  # before its tokenizer: another model may have none
        return replace(induction(model.network, model.tokenizer.word_ids()), model=model.name)

    @property
    def title(self) -> str:
        return f"induction score of each head (chance {self.chance:.3f})"

    def show(self, console: Console) -> None:
        show_heads(console, self.induction, self.title)

    def figure(self, width: float = SLIDE) -> Figure:
        rows, columns = head_labels(self.induction)
        return heatmap(
            self.induction, rows, columns, title=fit_title(self.title, width, self.model), label="weight", width=width
        )

    def best(self) -> tuple[int, int, float]:
        """Layer and head of the strongest induction head, and its score."""
        place = int(self.induction.argmax())
        layer, head = divmod(place, self.induction.size(1))
        return layer, head, float(self.induction[layer, head])

    def to_json(self) -> dict[str, Any]:
        scores = {name: rounded(getattr(self, name)) for name in ("induction", "previous", "repeated")}
        return {"format": FORMAT, **scores, "chance": self.chance, "first": self.first, "second": self.second}


@torch.no_grad()
def induction(model: nn.Module, token_ids: Sequence[int], length: int = 32, rows: int = 16, seed: int = 0) -> Induction:
    """The scores of a language model that reads random tokens, drawn from `token_ids`, twice."""
    require_causal_lm(model)
    if length < 2 or len(token_ids) < 2:
        raise ShapeError(f"{length} tokens of {len(token_ids)} kinds cannot be repeated; take at least 2 of 2")
    ids = repeated_tokens(token_ids, length, rows, seed)
    place = next(model.parameters()).device
    with capture(model, "decoder.*.self.weights") as seen:
        logits = model(ids.to(place))
    weights = torch.stack([layer.mean(0) for layer in seen.values()]).cpu()  # (layers, H, 2 N, 2 N)
    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2).cpu(), ids[:, 1:], reduction="none").mean(0)  # (2 N - 1,)
    return Induction(
        induction=_mean_weight(weights, length - 1, length),
        previous=_mean_weight(weights, 1, 1),
        repeated=_mean_weight(weights, length, length),
        chance=float((1 / torch.arange(length + 1, 2 * length + 1)).mean()),
        first=float(loss[: length - 1].mean()),
        second=float(loss[length:].mean()),
    )


def require_causal_lm(model: nn.Module) -> None:
    """Refuse a model that cannot have induction heads."""
    causal = isinstance(model, CausalModel) and model.is_causal_lm
    if not (causal and "decoder.0.self.weights" in probes(model)):
        raise ProbeError("induction heads belong to a causal language model with attention; this model is not one")


def repeated_tokens(token_ids: Sequence[int], length: int, rows: int, seed: int = 0) -> Tensor:
    """(B, 2 N): random tokens, then the same again."""
    random = torch.Generator().manual_seed(seed)
    half = torch.tensor(token_ids)[torch.randint(len(token_ids), (rows, length), generator=random)]
    return torch.cat((half, half), dim=1)


def _mean_weight(weights: Tensor, distance: int, first: int) -> Tensor:
    """(…, T, T) -> (…): the mean weight from the tokens `first` and later to the one `distance` before each."""
    return weights.diagonal(-distance, -2, -1)[..., first - distance :].mean(-1)
