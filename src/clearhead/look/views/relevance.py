"""Relevance: which tokens an answer rests on, by attention weights and the gradient of the answer.

    Ā = mean over heads of (∇A ⊙ A)⁺              weights that would make the answer likelier if they were larger
    self-attention      R ← R + Ā R                each layer passes on the relevance that its tokens already have
    cross-attention     R_ts ← R_ts + R̄_ttᵀ Ā R̄_ss      R̄: without the diagonal, rows scaled to a sum of 1, plus I

    B batch, H heads, T tokens written, S tokens read

(Chefer, Gur and Wolf, 2021.) Attention alone shows where a model looked; relevance also whether it mattered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.interventions import Kernel, attention_layers
from clearhead.look.probes import removing
from clearhead.look.record import LookRecord, index_range, rounded
from clearhead.look.render.figure import SLIDE, Figure, fit_title
from clearhead.look.render.image import image_overlays
from clearhead.look.render.matrix import Window, window_slice
from clearhead.look.render.terminal import show_bars
from clearhead.look.render.text import coloured_text
from clearhead.look.view import VIEWS, LookView, ViewOptions
from clearhead.look.views.rollout import show_patches
from clearhead.nn.attention import share_heads

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "clearhead-relevance-1"


@dataclass(frozen=True, eq=False)
class AttributionView(LookView):
    """How much each token that was read contributed to one answer: over the image, or over the text."""

    label: ClassVar[str]

    look: LookRecord
    data: dict[str, Any]  # as `to_json` returns it
    values: dict[str, Tensor]  # by kind of attention: (T,) or (S,)
    columns: Window = None
    query: int = -1  # the position of the answer

    @property
    def title(self) -> str:
        return f"{self.label}: {self.look.output}"

    def to_json(self) -> dict[str, Any]:
        return self.data

    def page_data(self) -> dict[str, Any]:
        """The numbers of the tokens, and the answers among which the page chooses."""
        look, answers = self.look, self._answers()
        tokens, values = self._tokens()
        return {
            **self.to_json(),
            "model": look.model,
            "text": look.text,
            "output": look.output,
            "rows": answers,
            "query": self.query % len(answers),
            "tokens": tokens,
            "values": rounded(values),
            "image": None if look.image is None else look.image.tolist(),
            "grid": None if look.grid is None else list(look.grid),
        }

    def _answers(self) -> list[str]:
        """The answer at each position, or the only one."""
        look = self.look
        if look.logits is None or look.logits.dim() == 1 or not look.choices:
            return [look.output]
        return [look.choices[best] for best in look.logits.argmax(-1).tolist()]

    def show(self, console: Console) -> None:
        if (shares := self._patches()) is not None:
            show_patches(console, shares, self.title)
        else:
            tokens, values = self._tokens()
            show_bars(console, values, tokens, self.title)

    def figure(self, width: float = SLIDE) -> Figure:
        """Over the image if there is one, otherwise the coloured text."""
        shares = self._patches()
        if self.look.image is not None and shares is not None:
            title = fit_title(self.title, width)
            return image_overlays(self.look.image, {self.label: shares}, title=title, width=width)
        tokens, values = self._tokens()
        title = fit_title(self.title, width, self.look.caption)
        return coloured_text(tokens, values, title=title, label=self.label, width=width)

    @property
    def _kind(self) -> str:
        return next(name for name in ("decoder.cross", "encoder.self", "decoder.self") if name in self.values)

    def _patches(self) -> Tensor | None:
        """(rows, columns), if the model read an image."""
        look = self.look
        if look.image is None or look.grid is None or self._kind == "decoder.self":
            return None
        patches = look.grid[0] * look.grid[1]  # the last tokens
        return self.values[self._kind][-patches:].clamp(min=0).view(look.grid)

    def _tokens(self) -> tuple[list[str], Tensor]:
        tokens = self.look.attention[self._kind].columns
        columns = window_slice(self.columns, len(tokens), "columns")
        return tokens[columns], self.values[self._kind][columns]


@VIEWS.register("relevance")
class Relevance(AttributionView):
    """What an answer rests on, by attention and gradients."""

    page = "relevance"
    label = "relevance"

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Self:
        position = answer_position(look, options)
        found = relevance(look.require_network(), look.inputs, position)
        values = {}
        for kind, table in found.tables.items():
            row = 0 if kind == "encoder.self" and look.class_token else position
            if kind != "encoder.self" or "decoder.cross" not in found.tables:
                values[kind] = table[0, row].detach()
        return cls(look, found.to_json(), values, options.columns, position)


def answer_position(look: LookRecord, options: ViewOptions) -> int:
    """The position of the explained answer: that of the query, by default the last."""
    position = options.query_index(look.attention[look.kind(options.kind)].rows)
    return -1 if position is None else position


@dataclass(frozen=True, eq=False)
class RelevanceTables:
    """The relevance of each token to each other one, for one answer."""

    tables: dict[str, Tensor]  # encoder.self (B, S, S), decoder.self (B, T, T), decoder.cross (B, T, S)
    choice: Tensor  # (B,): the token or label that is explained

    def to_json(self) -> dict[str, Any]:
        tables = {kind: rounded(table) for kind, table in self.tables.items()}
        return {"format": FORMAT, "choice": self.choice.tolist(), "relevance": tables}


def relevance(
    model: nn.Module, inputs: Sequence[Tensor], position: int = -1, choice: Tensor | int | None = None
) -> RelevanceTables:
    """What the answer at a position rests on: the likeliest one, or `choice`; a single label has no position.

    The row of the position in a table explains this answer; for an image or a classified text that of the class token.
    """
    with torch.enable_grad(), explicit_attention(model) as weights:
        answer, choice = choose_answer(model(*inputs), position, choice)
        gradients = torch.autograd.grad(answer.sum(), list(weights.values()), materialize_grads=True)
    contributions = {
        name: (gradient * table).detach().clamp(min=0).mean(1)  # (B, T, S)
        for (name, table), gradient in zip(weights.items(), gradients, strict=True)
    }
    return RelevanceTables(_propagate(contributions), choice)


@contextmanager
def explicit_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Compute with the explicit equation -> the weights (B, H, T, S) of each layer, with gradients."""
    seen: dict[str, Tensor] = {}

    def recorder(name: str) -> Callable[..., Tensor]:
        def compute(kernel: Kernel, inputs: tuple[Any, ...], _output: Tensor) -> Tensor:
            q, k, v, mask, offset, bias = inputs
            weights = kernel.explicit().weights(q, k, mask, offset, bias)
            seen[name] = weights if weights.requires_grad else weights.requires_grad_()
            return seen[name] @ share_heads(v, q.size(1))

        return compute

    layers = attention_layers(model).items()
    with removing(kernel.register_forward_hook(recorder(name)) for name, (kernel, _) in layers):
        yield seen


def choose_answer(logits: Tensor, position: int = -1, choice: Tensor | int | None = None) -> tuple[Tensor, Tensor]:
    """Logits (B, T, V) or (B, V) -> those of one answer (B,), and its index (B,): by default the likeliest."""
    if logits.dim() == 3:
        if not -logits.size(1) <= position < logits.size(1):
            raise ProbeError(f"there is no answer at position {position}; choose from {index_range(logits.size(1))}")
        logits = logits[:, position]
    if choice is None:
        choice = logits.argmax(-1)
    choice = torch.as_tensor(choice, device=logits.device).expand(len(logits))
    if int(choice.min()) < 0 or int(choice.max()) >= logits.size(-1):
        raise ProbeError(f"there is no answer {choice.tolist()}; choose from {index_range(logits.size(-1))}")
    return logits.gather(-1, choice.unsqueeze(-1)).squeeze(-1), choice


def _propagate(contributions: dict[str, Tensor]) -> dict[str, Tensor]:
    """Ā of every layer, in the order of computation -> R of every kind."""
    tables: dict[str, Tensor] = {}
    for name, own in contributions.items():
        stack, _, part = name.split(".")
        if part == "self":
            table = tables.setdefault(f"{stack}.self", _identity(own))
            tables[f"{stack}.self"] = table + own @ table
        if part == "self" and stack == "decoder" and "decoder.cross" in tables:
            tables["decoder.cross"] = tables["decoder.cross"] + own @ tables["decoder.cross"]
        if part == "cross":
            written, read = normalize_relevance(tables["decoder.self"]), normalize_relevance(tables["encoder.self"])
            tables["decoder.cross"] = tables.get("decoder.cross", 0) + written.mT @ own @ read
    return tables


def normalize_relevance(table: Tensor) -> Tensor:
    """R̄ of (B, T, T): rows without the diagonal scaled to a sum of 1, plus the identity."""
    others = table - _identity(table)
    total = others.sum(-1, keepdim=True)
    return others / total.masked_fill(total == 0, 1.0) + _identity(table)


def _identity(like: Tensor) -> Tensor:
    """(B, T, T): at first every token is relevant to itself alone."""
    if like.size(-1) != like.size(-2):
        raise ShapeError(f"weights of shape {tuple(like.shape)} are not self-attention")
    return torch.eye(like.size(-1), dtype=like.dtype, device=like.device).expand_as(like)
