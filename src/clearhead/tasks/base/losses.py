"""Losses, each returned as a sum and a count, so that batches and processes combine exactly: Σ sums / Σ counts.

cross entropy      -log p(target)                                  p = softmax(logits)
label smoothing    -(1 - ε) log p(target) - ε · mean log p

B batch, T tokens, V vocabulary, N = B × T, C classes
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

IGNORE_INDEX = -100  # targets with this value have no loss, as in torch

_LARGE = 2**24  # logits above which memory matters: 64 MB in float32
_CHUNK = 2**18  # logits that are processed at a time: a megabyte, which a core has near


def token_loss(logits: Tensor, targets: Tensor, pad: int, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Cross entropy of logits (B, T, V) and targets (B, T), summed over targets that are not `pad`; their number."""
    rows, flat, real = logits.flatten(0, -2), targets.flatten(), targets != pad  # (N, V), (N,), (B, T)
    if logits.numel() > _LARGE or smoothing:  # torch smooths in passes of its own, which take as long as the rest
        chunked: Tensor = _CrossEntropy.apply(rows, flat, real.flatten(), smoothing)  # type: ignore[no-untyped-call]
        return chunked, real.sum()
    rows = rows.to(_at_least_float32(rows.dtype))
    loss = F.cross_entropy(rows, flat, ignore_index=pad, label_smoothing=smoothing, reduction="sum")
    return loss, real.sum()


def class_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Cross entropy of logits (B, C) and labels (B,), summed over the batch; the batch size."""
    loss = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    return loss, labels.new_tensor(len(labels))


def label_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Binary cross entropy of every logit (B, C), true for labels (B,), summed; the batch size."""
    truth = F.one_hot(labels, logits.size(-1)).to(logits) * (1 - smoothing) + smoothing / 2
    return F.binary_cross_entropy_with_logits(logits, truth, reduction="sum"), labels.new_tensor(len(labels))


def mask_tokens(
    ids: Tensor,
    mask_id: int,
    vocab: int,
    share: float = 0.15,
    generator: torch.Generator | None = None,
    special_ids: Collection[int] = (),
) -> tuple[Tensor, Tensor]:
    """Masking for a masked language model, ids (B, T) -> inputs (B, T) and targets (B, T).

    Of the selected share of tokens 80 % become the mask token, 10 % a random token, and 10 % stay unchanged (BERT).
    Special tokens are never selected or drawn. Targets are IGNORE_INDEX where nothing was selected.
    """
    special = torch.tensor(sorted({*special_ids, mask_id}), device=ids.device)
    everything = torch.arange(vocab, device=ids.device)
    ordinary = everything[~torch.isin(everything, special)]
    device = ids.device if generator is None else generator.device
    select, action, which = torch.rand(3, *ids.shape, generator=generator, device=device).to(ids.device)  # each (B, T)
    selected = (select < share) & ~torch.isin(ids, special)
    random_ids = ordinary[(which * len(ordinary)).long().clamp(max=len(ordinary) - 1)]
    inputs = torch.where(selected & (action < 0.8), mask_id, ids)
    inputs = torch.where(selected & (action >= 0.8) & (action < 0.9), random_ids, inputs)
    return inputs, ids.masked_fill(~selected, IGNORE_INDEX)


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy in chunks of rows whose probabilities are used twice: for the loss, and at once for the gradient.

    On top of the logits and their gradient it needs a few megabytes; torch's needs two more tensors of that size,
    which for 4,096 tokens and a vocabulary of 32,000 is a gigabyte.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, real: Tensor, smoothing: float) -> Tensor:
        """logits (N, V), targets (N,), real (N,) -> ()."""
        targets = targets.masked_fill(~real, 0).unsqueeze(-1)  # (N, 1)
        loss = torch.empty(len(logits), dtype=_at_least_float32(logits.dtype), device=logits.device)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        for rows in _chunks(logits):
            log_p = F.log_softmax(logits[rows], -1, dtype=loss.dtype)  # (n, V)
            loss[rows] = (smoothing - 1) * log_p.gather(-1, targets[rows]).squeeze(-1)
            if smoothing:
                loss[rows] -= smoothing * log_p.mean(-1)
            if gradient is not None:  # p - (1 - ε) one_hot(target) - ε / V
                p = log_p.exp_().sub_(smoothing / logits.size(-1))
                p.scatter_add_(-1, targets[rows], p.new_full((len(p), 1), smoothing - 1))
                gradient[rows] = p.mul_(real[rows].unsqueeze(-1))
        ctx.save_for_backward(gradient)
        return loss.masked_fill_(~real, 0.0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """∂loss / ∂logits; in place, for which torch allows only one backward pass."""
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(upstream), None, None, None


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _chunks(logits: Tensor) -> Iterator[slice]:
    rows = max(1, _CHUNK // max(1, logits.size(-1)))
    return (slice(first, first + rows) for first in range(0, len(logits), rows))
