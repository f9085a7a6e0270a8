"""A view in one file: how spread out the attention of each head is.

CLEARHEAD_PLUGINS=view_plugin.py clearhead look en-es "She has a red car." --view entropy --out entropy.svg
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.look import VIEWS, Figure, LookRecord, LookView, ViewOptions, head_labels, heatmap, show_heads


@VIEWS.register("entropy")
@dataclass(frozen=True)
class Entropy(LookView):
    """How spread out the attention of each head is, in bits."""

    kind: str
    bits: Tensor  # (layers, heads): -Σ a log₂ a, averaged over queries

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Entropy:
        weights = torch.stack(look.pick(options.kind).weights)  # (layers, heads, queries, keys)
        return cls(look.kind(options.kind), torch.special.entr(weights).sum(-1).mean(-1) / math.log(2))

    def to_json(self) -> dict[str, Any]:
        return {"format": "entropy-1", "kind": self.kind, "bits": self.bits.tolist()}

    def figure(self, width: float = 10.0) -> Figure:
        title = f"entropy of {self.kind}"
        return heatmap(self.bits, *head_labels(self.bits), title=title, label="bits", width=width)

    def show(self, console: Any) -> None:
        show_heads(console, self.bits, f"entropy of {self.kind} in bits")
