"""The worked examples of attention, with the lectures' own numbers and equations."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.nn import (
    AdditiveScore,
    BilinearScore,
    MultiHeadAttention,
    additive_mask,
    attention,
    causal_mask,
    concatenate_and_project,
    dot,
    fused_attention,
    scaled_dot,
    sum_of_projections,
)


def key_with_score(query: Tensor, score: float) -> Tensor:
    """A random key whose dot product with the query is `score`."""
    key = torch.randn_like(query)
    return key + (score - key @ query) / (query @ query) * query


@pytest.mark.parametrize(
    ("size", "scores", "scaled", "weights"),
    [
        # 000: "q_1 · k_1 = 112, q_1 · k_2 = 96. Divide by 8 (√d_k): 14, 12. Softmax: 0.88, 0.12"
        (64, (112.0, 96.0), (14.0, 12.0), (0.88, 0.12)),
        # 004: "q_1 k_1ᵀ = 102, q_1 k_2ᵀ = 99. Divide by √D_K: 58.9, 57.2. Softmax: p_1,1 = 0.85, p_1,2 = 0.15"
        (3, (102.0, 99.0), (58.9, 57.2), (0.85, 0.15)),
    ],
    ids=["brown", "epfl"],
)
def test_score_scale_softmax_weight_sum(size, scores, scaled, weights):
    """000: "Score … Scale … Softmax … Weighting … Sum up weighted value vectors into one final vector z_1"."""
    torch.manual_seed(0)
    q = torch.randn(1, size, dtype=torch.float64)
    k = torch.stack([key_with_score(q[0], score) for score in scores])
    v = torch.randn(2, 5, dtype=torch.float64)
    output, seen = attention(q, k, v)
    assert_close(dot(q, k), torch.tensor([scores], dtype=torch.float64))
    assert_close(scaled_dot(q, k), torch.tensor([scaled], dtype=torch.float64), atol=0.05, rtol=0)
    assert_close(seen, torch.tensor([weights], dtype=torch.float64), atol=0.005, rtol=0)
    assert_close(output[0], seen[0, 0] * v[0] + seen[0, 1] * v[1])
    assert_close(fused_attention(q[None, None], k[None, None], v[None, None])[0, 0], output)


def test_mexican_food():
    """001: "we'll do a weighted average of the whole vector: v_q = Σ_i P(k_i|q) v_i", v = (price, calories, salt)."""
    mexican = torch.tensor([[2.0, 0.0]])
    foods = torch.tensor([[1.5, 0.2], [1.2, -0.3], [-1.0, 0.4], [-2.0, 0.1]])  # burrito, taco, sushi, apple
    facts = torch.tensor([[9.0, 700.0, 1.9], [4.0, 210.0, 0.7], [14.0, 350.0, 1.1], [1.0, 95.0, 0.0]])
    average, relevance = attention(mexican, foods, facts)
    exponentials = [math.exp(float(mexican[0] @ food) / math.sqrt(2)) for food in foods]
    by_hand = [e / sum(exponentials) for e in exponentials]
    assert_close(relevance, torch.tensor([by_hand]))
    assert_close(average[0], sum(share * fact for share, fact in zip(by_hand, facts, strict=True)))
    assert relevance[0, :2].sum() > 0.9  # burrito and taco are what is mexican
    assert average[0, 1] > facts[:, 1].mean()  # so the calories are theirs


def test_bank_account_and_river_bank():
    """001: "the word 'bank' has a very different meaning when you compare 'bank account' to 'river bank'"."""
    torch.manual_seed(1)
    word = dict(zip(("bank", "account", "river"), torch.randn(3, 7, dtype=torch.float64), strict=True))
    layer = MultiHeadAttention(7, 1).double()
    account = layer(torch.stack([word["bank"], word["account"]])[None])[0, 0]
    river = layer(torch.stack([word["river"], word["bank"]])[None])[0, 1]
    alone = layer(word["bank"].expand(1, 1, -1))[0, 0]
    assert (account - river).norm() > 0.1
    assert (account - alone).norm() > 0.05
    assert (river - alone).norm() > 0.05


def test_similarity_is_an_inner_product():
    """003: "If we define B = W^Q (W^K)ᵀ … r_ij = (x_i)ᵀ B (x_j)"."""
    torch.manual_seed(2)
    x = torch.randn(5, 11, dtype=torch.float64)
    layer = MultiHeadAttention(11, 1, key_dim=3, value_dim=2, bias=False).double()
    inner = layer.query.weight.T @ layer.key.weight  # B (11, 11)
    similarity = torch.stack([torch.stack([x_i @ inner @ x_j for x_j in x]) for x_i in x])
    assert_close(dot(layer.query(x), layer.key(x)), similarity)
    assert_close(layer.weights(x[None])[0, 0], torch.softmax(similarity / math.sqrt(3), dim=-1))
    score = BilinearScore(11).double()
    score.weight.data = inner.detach()
    assert_close(score(x, x), similarity)


def test_self_attention_in_one_line():
    """004: "Z = softmax(X W_Q W_Kᵀ Xᵀ / √D_K) X W_V", with D rows in the projection matrices, not T."""
    torch.manual_seed(3)
    x = torch.randn(5, 7, dtype=torch.float64)
    layer = MultiHeadAttention(7, 1, key_dim=3, value_dim=2, bias=False).double()
    w_q, w_k, w_v, w_o = (part.weight.T for part in (layer.query, layer.key, layer.value, layer.output))
    by_hand = torch.softmax(x @ w_q @ w_k.T @ x.T / math.sqrt(3), dim=-1) @ x @ w_v
    assert_close(layer(x[None])[0], by_hand @ w_o)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_look_ahead_matrix(length):
    """003: "L = [0 -∞ … -∞; 0 0 … -∞; … ; 0 0 0 0]. This step consists in compute M = Q Kᵀ / √d_k + L"."""
    look_ahead = torch.tensor([[0.0 if j <= i else -math.inf for j in range(length)] for i in range(length)])
    assert_close(additive_mask(causal_mask(length)), look_ahead)
    torch.manual_seed(4)
    q, k, v = torch.randn(length, 3), torch.randn(length, 3), torch.randn(length, 2)
    by_hand = torch.softmax(q @ k.T / math.sqrt(3) + look_ahead, dim=-1)
    output, weights = attention(q, k, v, causal_mask(length))
    assert_close(weights, by_hand)
    assert_close(output, by_hand @ v)


def test_sums_stop_at_position_i():
    """004: "p_ij = exp(q_i k_jᵀ/√D_K) / Σ_{t=1}^{i} exp(q_i k_tᵀ/√D_K) for j ≤ i and p_ij = 0 otherwise"."""
    torch.manual_seed(5)
    length, size = 7, 3
    q, k, v = (torch.randn(length, size, dtype=torch.float64) for _ in range(3))
    expected = torch.zeros(length, length, dtype=torch.float64)
    for i in range(length):
        terms = [math.exp(float(q[i] @ k[t]) / math.sqrt(size)) for t in range(i + 1)]
        expected[i, : i + 1] = torch.tensor(terms, dtype=torch.float64) / sum(terms)
    output, weights = attention(q, k, v, causal_mask(length))
    assert_close(weights, expected)
    assert weights.triu(1).eq(0).all()
    assert_close(output, torch.stack([expected[i, : i + 1] @ v[: i + 1] for i in range(length)]))


def test_concatenating_heads_is_adding_them():
    """001, key equation 58: "u = Σ_h W_{h,c}ᵀ Attention(…)"; the paper concatenates; "These are equivalent"."""
    torch.manual_seed(6)
    z, weight = torch.randn(2, 3, 5, 7), torch.randn(21, 11)
    by_hand = sum(z[:, head] @ weight[7 * head : 7 * head + 7] for head in range(3))
    assert_close(sum_of_projections(z, weight), by_hand)
    assert_close(concatenate_and_project(z, weight), by_hand)


def test_concatenating_heads_is_adding_them_in_the_layer():
    """004: "Z = [Z_1, …, Z_H] W_O", Z_h = softmax(X W_Q,h W_K,hᵀ Xᵀ / √D_K) X W_V,h."""
    torch.manual_seed(7)
    heads, key_dim, value_dim = 3, 5, 2
    layer = MultiHeadAttention(7, heads, key_dim=key_dim, value_dim=value_dim, bias=False).double()
    x = torch.randn(2, 11, 7, dtype=torch.float64)
    w_q, w_k = (part.weight.T.split(key_dim, dim=1) for part in (layer.query, layer.key))
    w_v = layer.value.weight.T.split(value_dim, dim=1)
    z = torch.stack([attention(x @ w_q[h], x @ w_k[h], x @ w_v[h])[0] for h in range(heads)], dim=1)
    assert_close(concatenate_and_project(z, layer.output.weight.T), layer(x))
    assert_close(sum_of_projections(z, layer.output.weight.T), layer(x))


def test_alignment_of_a_decoder_state_with_the_encoder_states():
    """002: "e_t,i = f_att(s_{t-1}, h_i) (f_att is an MLP) … Σ_i a_t,i = 1 … c_t = Σ_i a_t,i h_i"."""
    torch.manual_seed(8)
    states, decoder = torch.randn(4, 5, dtype=torch.float64), torch.randn(1, 3, dtype=torch.float64)
    score = AdditiveScore(query_dim=3, key_dim=5, hidden=7).double()
    context, weights = attention(decoder, states, states, score=score)
    energies = [torch.tanh(decoder[0] @ score.query + h @ score.key) @ score.weight[:, 0] for h in states]
    by_hand = torch.softmax(torch.stack(energies), dim=0)
    assert_close(weights[0], by_hand)
    assert_close(context[0], sum(a * h for a, h in zip(by_hand, states, strict=True)))
    assert ((weights > 0) & (weights < 1)).all()


def test_different_numbers_of_queries_and_keys():
    """002: "Query vectors Q (N_Q × D_Q), K = X W_K (N_X × D_Q), V = X W_V (N_X × D_V), Y (N_Q × D_V)"."""
    torch.manual_seed(9)
    layer = MultiHeadAttention(5, 1, key_dim=3, value_dim=2, memory_dim=7, bias=False).double()
    queries, x = torch.randn(1, 11, 5, dtype=torch.float64), torch.randn(1, 13, 7, dtype=torch.float64)
    q, k, v = queries @ layer.query.weight.T, x @ layer.key.weight.T, x @ layer.value.weight.T
    by_hand = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(3), dim=-1)  # (1, 11, 13)
    assert_close(layer.weights(queries, x)[:, 0], by_hand)
    assert_close(layer(queries, x), by_hand @ v @ layer.output.weight.T)
    assert_close(by_hand.sum(-1), torch.ones(1, 11, dtype=torch.float64))
