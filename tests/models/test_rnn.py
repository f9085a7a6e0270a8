"""Recurrent language models and translators against the lectures' equations, written out token by token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.errors import ConfigError, ShapeError
from clearhead.models.build import initialise
from clearhead.models.rnn import RnnLanguageModel
from clearhead.tasks.lm import TextModel

from .setting import CELLS, CONTEXTS, DIM, PAD, RNN, SCORES, B, S, System, T, V, memorise, sentences

LENGTHS = [5, 7, 1]


# --- language model ---


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


# --- translation ---


def translator(**settings: Any) -> Any:
    return System("translate", {**RNN, **settings}).build().double().eval()


def source_and_target() -> tuple[Tensor, Tensor]:
    """Padded sources (B, S) and targets (B, T)."""
    source = sentences(B, S).masked_fill(torch.arange(S) >= torch.tensor(LENGTHS).unsqueeze(1), PAD)
    return source, sentences(B, T)


def cell(network: nn.RNN, x: Tensor, h: Tensor, end: str = "l0") -> Tensor:
    """h_t = tanh(W_hx x_t + W_hh h_{t-1}), with torch's two biases."""
    weights = {name: getattr(network, f"{name}_{end}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    bias = weights["bias_ih"] + weights["bias_hh"]
    return torch.tanh(weights["weight_ih"] @ x + weights["weight_hh"] @ h + bias)


def vector(model: Any, token: Tensor) -> Tensor:
    return model.target.tokens.table.weight[token] * DIM**0.5


def read(model: Any, words: Tensor, end: str = "l0") -> list[Tensor]:
    """h_1 … h_S."""
    network, states = model.encoder.network, []
    h = torch.zeros(network.hidden_size, dtype=torch.float64)
    for word in words:
        h = cell(network, vector(model, word), h, end)
        states.append(h)
    return states


def first_state(model: Any, summary: Tensor) -> Tensor:
    return torch.tanh(model.first.linear.weight @ summary + model.first.linear.bias)


def logits(model: Any, s: Tensor) -> Tensor:
    return model.target.tokens.table.weight @ s


@pytest.mark.parametrize(
    ("context", "summary"),
    [("last", lambda states: states[-1]), ("sum", lambda states: sum(states[1:], states[0]))],
    ids=["c = h_S", "c = sum of h_i"],
)
def test_a_fixed_context_is_the_lectures_equation(context: str, summary: Any) -> None:
    """s_t = g(y_t, s_{t-1}, c), s_0 predicted from c."""
    model = translator(cell="rnn", context=context, layers=1)
    source, target = source_and_target()
    expected = []
    for words, length, output in zip(source, LENGTHS, target, strict=True):
        c = summary(read(model, words[:length]))
        s = first_state(model, c)
        for y in output:
            s = cell(model.decoder.network.network, torch.cat((vector(model, y), c)), s)
            expected.append(logits(model, s))
    assert_close(model(source, target), torch.stack(expected).view(B, T, V))


def test_attention_is_the_lectures_equation() -> None:
    """e_ti = MLP(s_{t-1}, h_i), a_t = softmax(e_t), c_t = Σ a_ti h_i, s_t = g(y_t, s_{t-1}, c_t)."""
    model = translator(cell="rnn", context="attention", score="additive", layers=1)
    score = model.decoder.score
    source, target = source_and_target()
    expected, alignment = [], torch.zeros(B, T, S, dtype=torch.float64)
    for row, (words, length, output) in enumerate(zip(source, LENGTHS, target, strict=True)):
        forwards = read(model, words[:length])
        backwards = read(model, words[:length].flip(0), "l0_reverse")[::-1]
        h = [torch.cat(pair) for pair in zip(forwards, backwards, strict=True)]
        s = first_state(model, torch.cat((forwards[-1], backwards[0])))
        for t, y in enumerate(output):
            e = [(torch.tanh(s @ score.query[0] + h_i @ score.key[0]) @ score.weight[0]).squeeze() for h_i in h]
            a = torch.stack(e).exp() / torch.stack(e).exp().sum()
            c = sum((a_i * h_i for a_i, h_i in zip(a, h, strict=True)), torch.zeros(DIM, dtype=torch.float64))
            s = cell(model.decoder.network.network, torch.cat((vector(model, y), c)), s)
            expected.append(logits(model, s))
            alignment[row, t, :length] = a
    assert_close(model(source, target), torch.stack(expected).view(B, T, V))
    assert_close(model.alignment(source, target), alignment)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kind", CELLS)
def test_the_alignment_looks_at_real_words_only(score: str, kind: str) -> None:
    model = translator(cell=kind, score=score)
    source, target = source_and_target()
    weights = model.alignment(source, target)
    assert weights.shape == (B, T, S)
    assert weights.masked_select((source == PAD).unsqueeze(1)).eq(0).all()
    assert_close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64))


def test_hard_attention_looks_at_one_word() -> None:
    model = translator(hard=True)
    weights = model.alignment(*source_and_target())
    assert_close(weights.sort(-1).values[..., -2:], torch.tensor([0.0, 1.0], dtype=torch.float64).expand(B, T, 2))


@pytest.mark.parametrize("context", ["last", "sum"])
def test_a_fixed_context_has_no_alignment(context: str) -> None:
    with pytest.raises(ConfigError, match=r"has no alignment; train with model\.context=attention"):
        translator(context=context).alignment(*source_and_target())


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_encoder_reads_both_ways_only_to_be_looked_at(context: str) -> None:
    model = translator(context=context)
    source, _ = source_and_target()
    other = source.clone()
    other[1, -1] = source[1, -1] % (V - 1) + 1
    same = model.read(source).states[1, 0].equal(model.read(other).states[1, 0])
    assert same == (context != "attention")
    assert model.read(source).states.shape == (B, S, DIM)


def test_half_of_an_odd_width_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dim=21 is odd"):
        translator(dim=21, heads=3)
    assert translator(dim=21, heads=3, context="last")(*source_and_target()).shape == (B, T, V)


@pytest.mark.parametrize("context", CONTEXTS)
def test_an_empty_source_is_refused(context: str) -> None:
    source, target = source_and_target()
    source[2] = PAD
    with pytest.raises(ShapeError, match="row 2 has no tokens"):
        translator(context=context)(source, target)
