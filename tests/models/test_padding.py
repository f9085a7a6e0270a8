"""Padding a text changes nothing for the rest of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from .setting import CELLS, CONTEXTS, PAD, RNN, B, S, System, T, sentences, systems

LENGTHS = [4, 7, 2]
READERS = [
    *systems("classify", {"pool": "mean"}, {"pool": "class"}, {"pool": "last"}, {"window": 3}),
    *systems("tag", {"positions": "sinusoidal"}, {"positions": "learned"}, {"positions": "t5"}),
    *systems("masked_lm", {}, {"positions": "alibi"}),
]
TRANSLATORS = [
    *systems("translate", {}, {"positions": "t5"}, {"window": 3}, {"placement": "after"}),
    *systems("translate", *({**RNN, "cell": cell, "context": context} for cell in CELLS for context in CONTEXTS)),
    *systems("translate", {**RNN, "hard": True}, {**RNN, "score": "additive"}),
]


def padded() -> Tensor:
    """Three sentences of different lengths, (B, S)."""
    return sentences(B, S).masked_fill(torch.arange(S) >= torch.tensor(LENGTHS).unsqueeze(1), PAD)


@pytest.mark.parametrize("system", TRANSLATORS, ids=str)
def test_a_translation_does_not_depend_on_the_padding_of_its_source(system: System) -> None:
    model, source, target = system.build().double().eval(), padded(), sentences(B, T)
    alone = [model(source[[row], :length], target[[row]]) for row, length in enumerate(LENGTHS)]
    assert_close(model(source, target), torch.cat(alone))


@pytest.mark.parametrize("system", READERS, ids=str)
def test_a_reading_does_not_depend_on_padding(system: System) -> None:
    model, ids = system.build().double().eval(), padded()
    together = model(ids)
    for row, length in enumerate(LENGTHS):
        alone = model(ids[[row], :length])[0]
        assert_close(together[row] if alone.dim() == 1 else together[row, :length], alone)
