"""Losses, each as a sum and a count, so that batches and processes can be combined exactly: Σ sums / Σ counts.

cross entropy      -log p(target)                                  p = softmax(logits)
label smoothing    -(1 - ε) log p(target) - ε · mean over all of log p

B batch, T tokens, V vocabulary, N = B × T, C classes
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

IGNORED = -100  # a target that is not asked for

_MANY = 2**24  # logits from which on memory counts: 64 MB in float32
_AT_ONCE = 2**20  # of them are then worked on at a time


def token_loss(logits: Tensor, targets: Tensor, pad: int, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """logits (B, T, V), targets (B, T) -> the loss summed over the real tokens, and how many these are."""
    rows, wanted, real = logits.flatten(0, -2), targets.flatten(), targets != pad  # (N, V), (N,), (B, T)
    if logits.numel() > _MANY:
        lean: Tensor = _CrossEntropy.apply(rows, wanted, real.flatten(), smoothing)  # type: ignore[no-untyped-call]
        return lean, real.sum()
    rows = rows.to(_precise(rows.dtype))
    loss = F.cross_entropy(rows, wanted, ignore_index=pad, label_smoothing=smoothing, reduction="sum")
    return loss, real.sum()


def class_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """logits (B, C), labels (B,) -> the loss summed over the batch, and its size."""
    loss = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    return loss, labels.new_tensor(len(labels))


def mask_tokens(
    ids: Tensor,
    mask_id: int,
    vocab: int,
    share: float = 0.15,
    generator: torch.Generator | None = None,
    special_ids: Collection[int] = (),
) -> tuple[Tensor, Tensor]:
    """Hide a share of the tokens, ids (B, T) -> what the model reads and what it must answer, each (B, T).

    Of the hidden ones 80 % become the mask, 10 % a random ordinary word, and 10 % stay, so that the model must
    doubt every word. Special tokens are never hidden. For all that are not hidden the answer is IGNORED.
    """
    special = torch.tensor(sorted({*special_ids, mask_id}), device=ids.device)
    everything = torch.arange(vocab, device=ids.device)
    ordinary = everything[~torch.isin(everything, special)]
    device = ids.device if generator is None else generator.device
    hide, how, which = torch.rand(3, *ids.shape, generator=generator, device=device).to(ids.device)  # each (B, T)
    hidden = (hide < share) & ~torch.isin(ids, special)
    words = ordinary[(which * len(ordinary)).long().clamp(max=len(ordinary) - 1)]
    inputs = torch.where(hidden & (how < 0.8), mask_id, ids)
    inputs = torch.where(hidden & (how >= 0.8) & (how < 0.9), words, inputs)
    return inputs, ids.masked_fill(~hidden, IGNORED)


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy that keeps nothing but the logits it was given: probabilities are made anew in the backward pass.

    On top of the logits and their gradient it needs a few megabytes; torch's needs two more tables of that size,
    which for 4,096 tokens and 32,000 words is a gigabyte.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, real: Tensor, smoothing: float) -> Tensor:
        """logits (N, V), targets (N,), real (N,) -> ()."""
        targets = targets.masked_fill(~real, 0)
        loss = torch.empty(len(logits), dtype=_precise(logits.dtype), device=logits.device)
        for rows in _pieces(logits):
            log_p = F.log_softmax(logits[rows], -1, dtype=loss.dtype)  # (n, V)
            loss[rows] = (smoothing - 1) * log_p.gather(-1, targets[rows].unsqueeze(-1)).squeeze(-1)
            if smoothing:
                loss[rows] -= smoothing * log_p.mean(-1)
        ctx.save_for_backward(logits, targets, real)
        ctx.smoothing = smoothing
        return loss.masked_fill_(~real, 0.0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """∂loss / ∂logits = p - (1 - ε) one_hot(target) - ε / V."""
        logits, targets, real = ctx.saved_tensors
        out = torch.empty_like(logits)
        for rows in _pieces(logits):
            p = F.softmax(logits[rows], -1, dtype=_precise(logits.dtype))  # (n, V)
            if ctx.smoothing:
                p -= ctx.smoothing / p.size(-1)
            p[torch.arange(len(p), device=p.device), targets[rows]] -= 1 - ctx.smoothing
            out[rows] = p.mul_(gradient * real[rows].unsqueeze(-1))
        return out, None, None, None


def _precise(dtype: torch.dtype) -> torch.dtype:
    """At least float32."""
    return torch.promote_types(dtype, torch.float32)


def _pieces(logits: Tensor) -> Iterator[slice]:
    """Some rows at a time."""
    rows = max(1, _AT_ONCE // max(1, logits.size(-1)))
    return (slice(first, first + rows) for first in range(0, len(logits), rows))
