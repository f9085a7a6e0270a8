from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.tasks.base import losses
from clearhead.tasks.base.losses import IGNORE_INDEX, class_loss, mask_tokens, token_loss

seeds = st.integers(0, 999)
smoothings = st.sampled_from([0.0, 0.1, 0.37])
pads = st.sampled_from([0, 5, IGNORE_INDEX])


def batch(seed: int, rows: int = 3, tokens: int = 5, vocabulary: int = 11, pad: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, tokens, vocabulary, dtype=torch.float64, generator=generator)
    targets = torch.randint(vocabulary, (rows, tokens), generator=generator)
    targets[torch.rand(rows, tokens, generator=generator) < 0.3] = pad
    return logits.requires_grad_(), targets


def torchs(logits: Tensor, targets: Tensor, pad: int, smoothing: float, reduction: str) -> Tensor:
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=pad, label_smoothing=smoothing, reduction=reduction
    )


@pytest.fixture(params=["plain", "lean"])
def path(request, monkeypatch):
    """Both implementations; the chunked one with two rows per chunk."""
    if request.param == "lean":
        monkeypatch.setattr(losses, "_LARGE", 0)
        monkeypatch.setattr(losses, "_CHUNK", 22)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])
@pytest.mark.parametrize("pad", [0, 7, IGNORE_INDEX])
def test_it_equals_torch_with_its_gradient(path, smoothing, pad):
    logits, targets = batch(1, pad=pad)
    loss, count = token_loss(logits, targets, pad, smoothing)
    assert count == (targets != pad).sum()
    assert_close(loss, torchs(logits, targets, pad, smoothing, "sum"))
    assert_close(loss / count, torchs(logits, targets, pad, smoothing, "mean"))
    (gradient,) = torch.autograd.grad(3 * loss, logits)
    (wanted,) = torch.autograd.grad(3 * torchs(logits, targets, pad, smoothing, "sum"), logits)
    assert_close(gradient, wanted)


def test_float32_and_bfloat16_logits(path):
    logits, targets = batch(2)
    wanted = torchs(logits, targets, 0, 0.1, "sum").detach()
    assert_close(token_loss(logits.float(), targets, 0, 0.1)[0].double(), wanted, rtol=1e-5, atol=1e-5)
    half = logits.detach().bfloat16().requires_grad_()
    loss, _ = token_loss(half, targets, 0, 0.1)
    assert loss.dtype == torch.float32
    assert_close(loss, torchs(half.float(), targets, 0, 0.1, "sum"))
    (gradient,) = torch.autograd.grad(loss, half)
    assert gradient.dtype == torch.bfloat16


def test_tokens_with_probability_zero(path):
    logits, targets = batch(3)
    logits = logits.detach()
    logits[..., 10] = -torch.inf
    targets[targets == 10] = 1
    loss, _ = token_loss(logits.requires_grad_(), targets, 0)
    assert_close(loss, torchs(logits, targets, 0, 0.0, "sum"))
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_a_batch_of_padding_has_no_loss(path):
    logits, targets = batch(4)
    loss, count = token_loss(logits, torch.zeros_like(targets), 0, 0.1)
    assert (loss.item(), count.item()) == (0.0, 0)
    assert torch.autograd.grad(loss, logits)[0].eq(0).all()


@given(seeds, smoothings, pads, st.integers(1, 4), st.integers(1, 4))
def test_the_loss_of_two_batches_is_the_sum_of_their_losses(seed, smoothing, pad, first, second):
    parts = [batch(seed + i, rows, pad=pad) for i, rows in enumerate((first, second))]
    sums, counts = zip(*(token_loss(*part, pad, smoothing) for part in parts), strict=True)
    logits, targets = (torch.cat(both) for both in zip(*parts, strict=True))
    loss, count = token_loss(logits, targets, pad, smoothing)
    assert_close(loss, sum(sums))
    assert count == sum(counts)


@given(seeds, pads)
def test_padding_changes_nothing(seed, pad):
    logits, targets = batch(seed, pad=pad)
    longer = torch.cat((logits, 9 * torch.ones(3, 2, 11)), dim=1), F.pad(targets, (0, 2), value=pad)
    assert_close(token_loss(logits, targets, pad, 0.1), token_loss(*longer, pad, 0.1))


@given(seeds)
def test_without_smoothing_it_is_minus_the_log_of_the_targets_probability(seed):
    logits, targets = batch(seed, pad=IGNORE_INDEX)
    logp = logits.log_softmax(-1)
    wanted = -sum(
        logp[i, j, t] for i, row in enumerate(targets.tolist()) for j, t in enumerate(row) if t != IGNORE_INDEX
    )
    assert_close(token_loss(logits, targets, IGNORE_INDEX, 0.0)[0], wanted)


@given(seeds, smoothings)
def test_the_loss_of_classes(seed, smoothing):
    logits, labels = batch(seed, 7, 1, pad=3)
    logits, labels = logits[:, 0], labels[:, 0]
    loss, count = class_loss(logits, labels, smoothing)
    assert_close(loss / count, F.cross_entropy(logits, labels, label_smoothing=smoothing))
    halves = [class_loss(logits[part], labels[part], smoothing) for part in (slice(0, 3), slice(3, 7))]
    assert_close(loss, halves[0][0] + halves[1][0])
    assert count == 7


# --- masking ---

SPECIAL = (0, 1, 2, 3, 5)
MASK = 4


def masked(share: float = 0.15, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    ids = torch.randint(101, (211, 223), generator=torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed)
    return ids, *mask_tokens(ids, MASK, 101, share, generator=generator, special_ids=SPECIAL)


def test_a_share_is_hidden_and_of_it_80_percent_masked_10_random_10_kept():
    ids, inputs, targets = masked()
    hidden = targets != IGNORE_INDEX
    ordinary = ~torch.isin(ids, torch.tensor([*SPECIAL, MASK]))
    assert hidden[ordinary].float().mean() == pytest.approx(0.15, abs=0.01)
    assert (inputs[hidden] == MASK).float().mean() == pytest.approx(0.8, abs=0.02)
    other = hidden & (inputs != MASK) & (inputs != ids)
    assert other.sum() / hidden.sum() == pytest.approx(0.1, abs=0.02)
    assert torch.bincount(inputs[other], minlength=101)[6:].min() > 0  # every ordinary word comes up
    assert torch.bincount(inputs[other], minlength=101)[:6].sum() == 0


def test_targets_are_what_was_hidden_and_the_rest_is_as_it_was():
    ids, inputs, targets = masked()
    hidden = targets != IGNORE_INDEX
    assert torch.equal(targets[hidden], ids[hidden])
    assert torch.equal(inputs[~hidden], ids[~hidden])


@given(seeds, st.floats(0, 1))
def test_special_tokens_are_never_hidden(seed, share):
    ids = torch.randint(13, (5, 7), generator=torch.Generator().manual_seed(seed))
    inputs, targets = mask_tokens(ids, MASK, 13, share, special_ids=SPECIAL)
    special = torch.isin(ids, torch.tensor([*SPECIAL, MASK]))
    assert torch.equal(inputs[special], ids[special])
    assert targets[special].eq(IGNORE_INDEX).all()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_none_or_all_may_be_hidden(share):
    ids, _, targets = masked(share)
    ordinary = ~torch.isin(ids, torch.tensor([*SPECIAL, MASK]))
    assert torch.equal(targets != IGNORE_INDEX, ordinary & bool(share))


def test_the_same_generator_hides_the_same():
    for first, second in zip(masked(seed=3), masked(seed=3), strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(masked(seed=3)[1], masked(seed=4)[1])
