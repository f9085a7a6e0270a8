"""Relevance: which tokens an answer rests on, by attention weights and what the answer feels of them.

    Ā = mean over heads of (∇A ⊙ A)⁺              weights that, were they larger, would make the answer likelier
    self-attention      R ← R + Ā R                each layer passes on what its tokens already stand for
    cross-attention     R_ts ← R_ts + R̄_ttᵀ Ā R̄_ss      R̄: without itself, rows brought to a sum of 1, itself added

    B batch, H heads, T tokens written, S tokens read

(Chefer, Gur and Wolf, 2021.) Attention alone says where a model looked, this also whether it mattered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.interventions import Kernel, attention_layers
from clearhead.look.look import span
from clearhead.look.storing import rounded
from clearhead.nn.attention import share_heads

FORMAT = "clearhead-relevance-1"


@dataclass(frozen=True, eq=False)
class Relevance:
    """For one answer: how much each token came to stand for each other one."""

    tables: dict[str, Tensor]  # encoder.self (B, S, S), decoder.self (B, T, T), decoder.cross (B, T, S)
    choice: Tensor  # (B,): the token or label that is explained

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        tables = {kind: rounded(table) for kind, table in self.tables.items()}
        return {"format": FORMAT, "choice": self.choice.tolist(), "relevance": tables}


def relevance(
    model: nn.Module, inputs: Sequence[Tensor], position: int = -1, choice: Tensor | int | None = None
) -> Relevance:
    """What the answer at a position rests on: the likeliest one, or `choice`; for one label the position is not asked.

    Of a table, the row of the position is about this answer; for an image or a text the row of the class token.
    """
    with torch.enable_grad(), explicit_attention(model) as weights:
        answer, choice = chosen(model(*inputs), position, choice)
        gradients = torch.autograd.grad(answer.sum(), list(weights.values()), materialize_grads=True)
    felt = {
        name: (gradient * table).detach().clamp(min=0).mean(1)  # (B, T, S)
        for (name, table), gradient in zip(weights.items(), gradients, strict=True)
    }
    return Relevance(_passed_on(felt), choice)


@contextmanager
def explicit_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """The model computes with the written-out equation; its weights (B, H, T, S) by layer, with their gradients."""
    seen: dict[str, Tensor] = {}

    def recorder(name: str) -> Any:
        def compute(kernel: Kernel, given: tuple[Any, ...], _gave: Tensor) -> Tensor:
            q, k, v, mask, offset, bias = given
            weights = kernel.explicit().weights(q, k, mask, offset, bias)
            seen[name] = weights if weights.requires_grad else weights.requires_grad_()
            return seen[name] @ share_heads(v, q.size(1))

        return compute

    hooks = [kernel.register_forward_hook(recorder(name)) for name, (kernel, _) in attention_layers(model).items()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def chosen(logits: Tensor, position: int = -1, choice: Tensor | int | None = None) -> tuple[Tensor, Tensor]:
    """Logits (B, T, V) or (B, V) -> those of one answer (B,), and which it is (B,): the likeliest unless said."""
    if logits.dim() == 3:
        if not -logits.size(1) <= position < logits.size(1):
            raise ProbeError(f"there is no answer at position {position}; choose from {span(logits.size(1))}")
        logits = logits[:, position]
    if choice is None:
        choice = logits.argmax(-1)
    choice = torch.as_tensor(choice, device=logits.device).expand(len(logits))
    if int(choice.min()) < 0 or int(choice.max()) >= logits.size(-1):
        raise ProbeError(f"there is no answer {choice.tolist()}; choose from {span(logits.size(-1))}")
    return logits.gather(-1, choice.unsqueeze(-1)).squeeze(-1), choice


def _passed_on(felt: dict[str, Tensor]) -> dict[str, Tensor]:
    """Ā of every layer, in the order of computation -> R of every kind."""
    tables: dict[str, Tensor] = {}
    for name, own in felt.items():
        stack, _, part = name.split(".")
        if part == "self":
            table = tables.setdefault(f"{stack}.self", _itself(own))
            tables[f"{stack}.self"] = table + own @ table
        if part == "self" and stack == "decoder" and "decoder.cross" in tables:
            tables["decoder.cross"] = tables["decoder.cross"] + own @ tables["decoder.cross"]
        if part == "cross":
            written, read = normalised(tables["decoder.self"]), normalised(tables["encoder.self"])
            tables["decoder.cross"] = tables.get("decoder.cross", 0) + written.mT @ own @ read
    return tables


def normalised(table: Tensor) -> Tensor:
    """R̄ of (B, T, T): what came to a token from the others as shares of 1, beside all of itself."""
    others = table - _itself(table)
    total = others.sum(-1, keepdim=True)
    return others / total.masked_fill(total == 0, 1.0) + _itself(table)


def _itself(like: Tensor) -> Tensor:
    """(B, T, T): at first every token stands for itself alone."""
    if like.size(-1) != like.size(-2):
        raise ShapeError(f"weights of shape {tuple(like.shape)} are no self-attention")
    return torch.eye(like.size(-1), dtype=like.dtype, device=like.device).expand_as(like)
