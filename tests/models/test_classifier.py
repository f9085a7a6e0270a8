"""A label for a text, and for each of its tokens."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.nn import POOLS, first_token, last_token, max_token, mean_token
from clearhead.nn.pooling import class_token_and_mean, first_two_tokens, root_mean_token, weighted_mean_token

from .setting import CLASSES, DIM, B, S, System, T, assert_every_parameter_learns, memorise, sentences

TAG = System("tag")


@pytest.mark.parametrize("pool", POOLS.builtin())
def test_one_label_for_a_text(pool: str) -> None:
    model = System("classify", {"pool": pool}).build()
    logits = model(sentences(B, T))
    assert logits.shape == (B, CLASSES)
    (logits * torch.randn_like(logits)).sum().backward()
    assert_every_parameter_learns(model)


@pytest.mark.parametrize(
    ("pool", "chosen"),
    [
        *(("class", first_token), ("mean", mean_token), ("max", max_token), ("last", last_token)),
        *(("weighted_mean", weighted_mean_token), ("root_mean", root_mean_token), ("first_two", first_two_tokens)),
        ("class_and_mean", class_token_and_mean),
    ],
    ids=POOLS.builtin(),
)
def test_the_pool_chooses_what_speaks_for_the_text(pool: str, chosen) -> None:
    model, ids = System("classify", {"pool": pool}).build().double().eval(), sentences(B, S)
    ids[1, 4:] = 0
    assert model.encoder(ids).shape == (B, S, DIM)
    assert_close(model(ids), model.output.linear(chosen(model.encoder(ids), ids != 0)))


def test_one_label_for_each_token() -> None:
    model = TAG.build()
    logits = model(sentences(B, T))
    assert logits.shape == (B, T, CLASSES)
    (logits * torch.randn_like(logits)).sum().backward()
    assert_every_parameter_learns(model)


@pytest.mark.parametrize("system", [TAG, System("classify")], ids=str)
def test_every_token_sees_all_the_others(system: System) -> None:
    model, ids = system.build().double().eval(), sentences(B, T)
    other = ids.clone()
    other[:, -1] = ids[:, -1] % 12 + 1
    assert (model(other) - model(ids)).abs().amax(-1).gt(1e-6).all()


@pytest.mark.parametrize("pool", POOLS.builtin())
def test_a_few_texts_are_learned_by_heart(pool: str) -> None:
    model, labels = System("classify", {"pool": pool}).build(), torch.tensor([7, 1, 7, 4, 10])
    ids = torch.tensor([[1, 2, 3, 4], [1, 3, 2, 4], [5, 6, 7, 4], [1, 6, 3, 4], [1, 4, 9, 4]])
    assert memorise(model, lambda: F.cross_entropy(model(ids), labels)) < 0.1
    assert model(ids).argmax(-1).equal(labels)


def test_the_tags_of_a_few_texts_are_learned_by_heart() -> None:
    model, ids = TAG.build(), torch.tensor([[1, 2, 3, 4], [1, 3, 2, 4], [5, 1, 7, 4]])
    labels = torch.tensor([[0, 5, 2, 9], [3, 2, 8, 1], [10, 6, 6, 4]])
    assert memorise(model, lambda: F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())) < 0.1
    assert model(ids).argmax(-1).equal(labels)
