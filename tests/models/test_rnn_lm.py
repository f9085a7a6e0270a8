"""A recurrent language model: the state is all it knows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.models.config import TextModel
from clearhead.models.initialise import initialise
from clearhead.models.rnn import RnnLanguageModel

from .setting import CELLS, DIM, RNN, B, System, T, memorise, sentences


def language_model(**settings: Any) -> Any:
    return System("lm", {**RNN, **settings}).build().double().eval()


def test_the_vanilla_cell_is_the_lectures_equation() -> None:
    model, ids = language_model(cell="rnn", layers=1), sentences(B, T)
    network, x = model.network.network, model.tokens(ids)
    h, states = torch.zeros(B, DIM, dtype=torch.float64), []
    for t in range(T):
        bias = network.bias_ih_l0 + network.bias_hh_l0
        h = torch.tanh(x[:, t] @ network.weight_ih_l0.T + h @ network.weight_hh_l0.T + bias)
        states.append(h)
    assert_close(model.read(ids), torch.stack(states, dim=1))
    assert_close(model(ids), torch.stack(states, dim=1) @ model.tokens.tokens.table.weight.T)


@pytest.mark.parametrize("cell", CELLS)
def test_reading_leaves_the_earlier_state_as_it_was(cell: str) -> None:
    model, ids = language_model(cell=cell), sentences(B, T)
    _, state = model.step(ids, model.start())
    first, _ = model.step(ids[:, :1], state)
    again, _ = model.step(ids[:, :1], state)
    assert_close(first, again, rtol=0, atol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_the_letters_of_hello(cell: str) -> None:
    """The Georgia Tech lecture: vocabulary [h, e, l, o], trained to write hello, then fed its own letters."""
    letters = "helo"
    torch.manual_seed(2)
    model = initialise(RnnLanguageModel(TextModel(dim=8, heads=1, layers=1, dropout=0.0, cell=cell), len(letters)))
    word = torch.tensor([[letters.index(letter) for letter in "hello"]])
    memorise(model, lambda: F.cross_entropy(model(word[:, :-1])[0], word[0, 1:]), learning_rate=0.05)
    ids, state, written = word[:, :1], model.start(), "h"
    for _ in range(4):
        logits, state = model.step(ids, state)
        ids = logits[:, -1:].argmax(-1)
        written += letters[int(ids)]
    assert written == "hello"
