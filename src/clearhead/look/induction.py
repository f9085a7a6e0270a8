"""Induction heads: after `… A B … A`, a head that looks back at B, and so lets the model say B again.

Random tokens are written twice. Nothing but the first half can tell what comes next in the second, so

    induction       weight from each token of the second half to the one that followed it in the first
    previous        weight from each token to the one before it: what an induction head builds on
    repeated        the token itself in the first half

and a model with such heads has a lower loss in the second half than in the first.

    B texts, N tokens in each half, H heads

(Olsson et al., 2022.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.capture import capture
from clearhead.look.probes import probes
from clearhead.look.storing import rounded
from clearhead.models.base import Model

FORMAT = "clearhead-induction-1"


@dataclass(frozen=True, eq=False)
class Induction:
    """How much each head does of each kind, and what it is good for."""

    induction: Tensor  # (layers, H)
    previous: Tensor  # (layers, H)
    repeated: Tensor  # (layers, H)
    chance: float  # the weight if every head looked everywhere alike
    first: float  # loss of a token in the first half
    second: float  # and in the second

    def best(self) -> tuple[int, int, float]:
        """Layer and head of the strongest induction head, and its score."""
        place = int(self.induction.argmax())
        layer, head = divmod(place, self.induction.size(1))
        return layer, head, float(self.induction[layer, head])

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        scores = {name: rounded(getattr(self, name)) for name in ("induction", "previous", "repeated")}
        return {"format": FORMAT, **scores, "chance": self.chance, "first": self.first, "second": self.second}


@torch.no_grad()
def induction(
    model: nn.Module, vocabulary: Sequence[int], length: int = 32, rows: int = 16, seed: int = 0
) -> Induction:
    """Let a language model read random tokens of a vocabulary twice."""
    must_look_back(model)
    if length < 2 or len(vocabulary) < 2:
        raise ShapeError(f"{length} tokens of {len(vocabulary)} kinds are nothing to repeat; take at least 2 of 2")
    ids = repeated_tokens(vocabulary, length, rows, seed)
    place = next(model.parameters()).device
    with capture(model, "decoder.*.self.weights") as seen:
        logits = model(ids.to(place))
    weights = torch.stack([layer.mean(0) for layer in seen.values()]).cpu()  # (layers, H, 2 N, 2 N)
    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2).cpu(), ids[:, 1:], reduction="none").mean(0)  # (2 N - 1,)
    return Induction(
        induction=_back(weights, length - 1, length),
        previous=_back(weights, 1, 1),
        repeated=_back(weights, length, length),
        chance=float((1 / torch.arange(length + 1, 2 * length + 1)).mean()),
        first=float(loss[: length - 1].mean()),
        second=float(loss[length:].mean()),
    )


def must_look_back(model: nn.Module) -> None:
    """Refuse a model that cannot have such heads."""
    causal = isinstance(model, Model) and model.is_causal_lm
    if not (causal and "decoder.0.self.weights" in probes(model)):
        raise ProbeError("induction heads belong to a language model that attends to what came before; load such a one")


def repeated_tokens(vocabulary: Sequence[int], length: int, rows: int, seed: int = 0) -> Tensor:
    """(B, 2 N): random tokens, then the same again."""
    random = torch.Generator().manual_seed(seed)
    half = torch.tensor(vocabulary)[torch.randint(len(vocabulary), (rows, length), generator=random)]
    return torch.cat((half, half), dim=1)


def _back(weights: Tensor, distance: int, first: int) -> Tensor:
    """(…, T, T) -> (…): the mean weight from the tokens `first` and later to the one `distance` before each."""
    return weights.diagonal(-distance, -2, -1)[..., first - distance :].mean(-1)
