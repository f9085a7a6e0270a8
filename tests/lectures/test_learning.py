"""Small experiments: what the lectures claim about learning, on a task of looking up a value by its name."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.nn import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    MultiHeadAttention,
    TokenEmbedding,
    TokenOutput,
    attention,
    cosine,
    dot,
    pick_one,
    scaled_dot,
)

NAMES, VALUES = 13, 7


class Lookup(nn.Module):
    """A memory of (name, value) pairs, and a question: what is the value of this name?"""

    def __init__(self, layer: MultiHeadAttention):
        super().__init__()
        self.names, self.values = TokenEmbedding(NAMES, layer.dim // 2), TokenEmbedding(VALUES, layer.dim // 2)
        self.layer, self.output = layer, TokenOutput(layer.dim, VALUES)

    def forward(self, names: Tensor, values: Tensor, asked: Tensor) -> Tensor:
        """names and values (B, S), asked (B, 1) -> (B, 1, VALUES)."""
        memory = torch.cat([self.names(names), self.values(values)], dim=-1)
        question = F.pad(self.names(asked), (0, self.layer.dim // 2))
        return self.output(self.layer(question, memory))


def questions(rows: int, items: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Different names in each row, each with a value; one of them is asked for."""
    names = torch.rand(rows, NAMES).argsort(-1)[:, :items]
    values, place = torch.randint(VALUES, (rows, items)), torch.randint(items, (rows, 1))
    return names, values, names.gather(1, place), values.gather(1, place)


def train(model: Lookup, steps: int, learning_rate: float, items: int) -> tuple[float, float]:
    """Loss and accuracy on new questions after training."""
    optimiser = torch.optim.Adam(model.parameters(), learning_rate)
    for _ in range(steps):
        *batch, answer = questions(64, items)
        optimiser.zero_grad()
        F.cross_entropy(model(*batch).flatten(0, 1), answer.flatten()).backward()
        optimiser.step()
    *batch, answer = questions(512, items)
    with torch.no_grad():
        logits = model(*batch)
    loss = F.cross_entropy(logits.flatten(0, 1), answer.flatten())
    return float(loss), float((logits.argmax(-1) == answer).float().mean())


def minus_distance(q: Tensor, k: Tensor) -> Tensor:
    return -torch.cdist(q, k)


SCORES = {
    "dot": lambda: dot,
    "scaled dot": lambda: scaled_dot,
    "additive": lambda: AdditiveScore(8, heads=2),
    "bilinear": lambda: BilinearScore(8, heads=2),
    "cosine": lambda: CosineScore(heads=2),
    "own function": lambda: minus_distance,
}


@pytest.mark.parametrize("score", SCORES)
def test_every_score_trains(score):
    """000: "self-attention can adopt any score functions"; 001: "we could replace it with a different metric"."""
    torch.manual_seed(0)
    model = Lookup(MultiHeadAttention(16, 2, score=SCORES[score]()))
    *batch, answer = questions(64, 5)
    F.cross_entropy(model(*batch).flatten(0, 1), answer.flatten()).backward()
    assert all(p.grad.abs().max() > 0 for name, p in model.named_parameters() if not vanishes(name, score))
    _, accuracy = train(model, steps=120, learning_rate=0.01, items=5)
    assert accuracy > 0.97


def vanishes(name: str, score: str) -> bool:
    """A bias of the keys adds the same to every score of a query where the score is linear in the key."""
    return name == "layer.key.bias" and score in ("dot", "scaled dot", "bilinear")


@pytest.mark.parametrize("score", ["scaled dot", "additive"])
def test_hard_attention_trains(score):
    """000: "Local/Hard: Attending to the part of input state space": one key, by the straight-through estimator."""
    torch.manual_seed(1)
    model = Lookup(MultiHeadAttention(16, 2, score=SCORES[score](), normalize=pick_one))
    _, accuracy = train(model, steps=150, learning_rate=0.01, items=5)
    assert accuracy > 0.95
    names, values, asked, _ = questions(11, 5)
    memory = torch.cat([model.names(names), model.values(values)], dim=-1)
    weights = model.layer.weights(F.pad(model.names(asked), (0, 8)), memory)
    assert weights.max(-1).values.eq(1).all()
    assert weights.sum(-1).eq(1).all()


def entropy(weights: Tensor) -> float:
    return float(-(weights * weights.clamp(min=1e-30).log()).sum(-1).mean())


def test_weights_are_sharp_at_initialisation_without_scaling():
    """004: "Without scaling: sharp distribution of the attention weights p_i,j at random initialization"."""
    torch.manual_seed(2)
    even = math.log(31)  # 31 keys, all the same weight
    for size in (64, 256, 1024):
        q, k, v = torch.randn(101, size), torch.randn(31, size), torch.randn(31, 2)
        assert entropy(attention(q, k, v)[1]) > 0.8 * even
        assert entropy(attention(q, k, v, score=dot)[1]) < 0.25 * even


def test_gradients_vanish_at_initialisation_without_scaling():
    """004: "takes much more time to adjust from the initial peak due to vanishing gradients"."""
    torch.manual_seed(3)

    def slope(score) -> float:
        """How far a weight moves for a small move of its score, at most: p (1 - p), averaged over the weights."""
        weights = attention(torch.randn(101, 256), torch.randn(31, 256), torch.randn(31, 2), score=score)[1]
        return float((weights * (1 - weights)).mean())

    assert slope(dot) < slope(scaled_dot) / 4


@pytest.mark.parametrize("seed", [4, 5])
def test_scaling_makes_learning_faster(seed):
    """004: "The 1/√D_K scaling ensures uniformity at initialization and faster convergence"; here D_K = 256."""
    loss = {}
    for score in (scaled_dot, dot):
        torch.manual_seed(seed)
        model = Lookup(MultiHeadAttention(32, 1, key_dim=256, score=score))
        for table in (model.names.table, model.values.table):
            nn.init.normal_(table.weight)
        for part in (model.layer.query, model.layer.key):  # queries and keys of variance 1, as the argument assumes
            nn.init.normal_(part.weight, std=32**-0.5)
            nn.init.zeros_(part.bias)
        loss[score], _ = train(model, steps=60, learning_rate=0.003, items=11)
    assert loss[scaled_dot] < 0.1
    assert loss[dot] > 10 * loss[scaled_dot]


def test_plain_cosine_cannot_become_sharp():
    """001: cosine similarity "ranges from -1 to +1", so without a temperature no key can win over many others."""
    torch.manual_seed(6)
    q, k = torch.randn(1, 8), torch.randn(31, 8)
    k[0] = 100 * q[0]
    _, weights = attention(q, k, torch.randn(31, 2), score=cosine)
    assert weights.max() == weights[0, 0] < math.exp(2) / (math.exp(2) + 30) + 1e-6
    score = CosineScore()
    nn.init.constant_(score.sharpness, 50.0)
    assert attention(q, k, torch.randn(31, 2), score=score)[1][0, 0] > 0.99
