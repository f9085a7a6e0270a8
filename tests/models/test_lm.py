"""Language models: one learns the next token, the other those that were masked."""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.testing import assert_close

from .setting import DIM, B, System, T, V, assert_every_parameter_learns, memorise, sentences

NEXT, MASKED = System("lm"), System("masked_lm")
MASK = 12  # the id that hides a token


def test_logits_are_the_product_of_what_was_read_with_the_embedding() -> None:
    model, ids = NEXT.build().double().eval(), sentences(B, T)
    assert model.read(ids).shape == (B, T, DIM)
    assert_close(model(ids), model.read(ids) @ model.tokens.tokens.table.weight.T)


def test_a_masked_model_sees_both_ways() -> None:
    model, ids = MASKED.build().double().eval(), sentences(B, T)
    other = ids.clone()
    other[:, -1] = ids[:, -1] % (V - 1) + 1
    changed = (model(other) - model(ids)).abs().amax(-1)  # (B, T)
    assert changed.gt(1e-6).all()


def test_every_parameter_of_a_masked_model_learns() -> None:
    model = MASKED.build()
    logits = model(sentences(B, T))
    assert logits.shape == (B, T, V)
    (logits * torch.randn_like(logits)).sum().backward()
    assert_every_parameter_learns(model)


def test_masked_tokens_are_learned_by_heart() -> None:
    model, ids = MASKED.build(), torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 1, 4, 7, 2]])
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    hidden[[0, 1, 2, 2], [1, 3, 0, 4]] = True
    shown = ids.masked_fill(hidden, MASK)
    assert memorise(model, lambda: F.cross_entropy(model(shown)[hidden], ids[hidden])) < 0.1
    assert model(shown).argmax(-1)[hidden].equal(ids[hidden])


def test_the_logits_of_hidden_tokens_are_rows_of_all_logits() -> None:
    model, ids = MASKED.build().double().eval(), sentences(B, T)
    hidden = torch.rand(B, T, generator=torch.Generator().manual_seed(7)) < 0.4
    assert_close(model(ids, hidden), model(ids)[hidden])
    assert model(ids, torch.zeros(B, T, dtype=torch.bool)).shape == (0, V)
