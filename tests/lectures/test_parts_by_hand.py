"""Embeddings, patches, norms, feed-forward, recurrent cells and outputs against the lectures' equations."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.nn import (
    ClassToken,
    Encoder,
    EncoderBlock,
    FeedForward,
    FlattenOutput,
    LayerNorm,
    LearnedPositions,
    MultiHeadAttention,
    PatchEmbedding,
    PostNorm,
    PreNorm,
    Recurrent,
    SequenceOutput,
    TokenEmbedding,
    first_token,
    last_token,
    layer_norm,
    one_hot,
    sum_of_states,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_embedding_is_one_hot_times_matrix():
    """004: "X = [e_i1ᵀ; …; e_iTᵀ] W_emb (since e_iᵀ W_emb = w_iᵀ)", ids of "<User:>Transformers are awesome!"."""
    ids = torch.tensor([[0, 5124, 1029, 645, 3001, 6931, 7330, 10]])
    embedding = TokenEmbedding(7331, 5)
    codes = one_hot(ids, 7331)
    upstream = torch.randn(1, 8, 5)
    looked_up = embedding(ids)
    (gradient,) = torch.autograd.grad(looked_up, embedding.table.weight, upstream)
    assert_close(looked_up, codes @ embedding.table.weight)
    assert_close(gradient, codes[0].T @ upstream[0])  # the gradient reaches the rows that were chosen, and no other


def test_repeated_tokens_add_their_gradients():
    """004: "The matrix W_emb is learned via backpropagation"."""
    ids = torch.tensor([[2, 0, 2]])
    embedding = TokenEmbedding(3, 2, scale=3.0)
    (gradient,) = torch.autograd.grad(embedding(ids).sum(), embedding.table.weight)
    assert_close(gradient, torch.tensor([[3.0, 3.0], [0.0, 0.0], [6.0, 6.0]]))


@pytest.mark.parametrize(("patch", "channels"), [(1, 2), (2, 1), (3, 5), (7, 3), (16, 3)])
def test_patches_are_a_strided_convolution(patch, channels):
    """004: "Flatten each patch into a vector of size 16·16·3 = 768 … Multiply each by an embedding matrix W_emb"."""
    embedding = PatchEmbedding(patch, channels, 11).double()
    images = double(2, channels, 3 * patch, 5 * patch)
    kernel = embedding.linear.weight.view(11, patch, patch, channels).permute(0, 3, 1, 2)
    convolved = F.conv2d(images, kernel, embedding.linear.bias, stride=patch)  # (2, 11, 3, 5)
    assert_close(embedding(images), convolved.flatten(2).transpose(1, 2))


def test_layer_norm_equation():
    """001, key equation 62: "LayerNorm(z; γ, β) = γ (z - μ_z) / σ_z + β", σ_z over d (not d - 1)."""
    z, gain, shift = double(5), double(5), double(5)
    mean = sum(z) / 5
    spread = math.sqrt(sum((z_i - mean) ** 2 for z_i in z) / 5)
    by_hand = torch.stack([gain[i] * (z[i] - mean) / spread + shift[i] for i in range(5)])
    assert_close(layer_norm(z, gain, shift, eps=0.0), by_hand)
    assert_close(F.layer_norm(z, (5,), gain, shift, eps=0.0), by_hand)


def test_layer_norm_scales_to_mean_and_spread():
    """001: "Finally, we scale them back up, to have mean β and s.d. γ", for "each of our N tokens separately"."""
    norm = LayerNorm(64).double()
    nn.init.constant_(norm.weight, 3.0)
    nn.init.constant_(norm.bias, -2.0)
    z = norm(5 + 7 * double(2, 11, 64))
    assert_close(z.mean(-1), torch.full((2, 11), -2.0, dtype=torch.float64))
    assert_close(z.std(-1, correction=0), torch.full((2, 11), 3.0, dtype=torch.float64), atol=1e-5, rtol=0)


def test_add_and_norm():
    """003: "Norm(X + F(X))"; 001, definition 60: "output = F(x) + x"."""
    block, x, w = PostNorm(7).double(), double(2, 5, 7), double(7, 7)
    assert_close(block(x, lambda y: y @ w), layer_norm(x + x @ w, block.norm.weight, block.norm.bias))


def test_feed_forward_equation():
    """003: "FFN(X) = max(0, X W_1 + b_1) W_2 + b_2"."""
    part, x = FeedForward(5, 13).double(), double(2, 3, 5)
    hidden = (x @ part.inner.weight.T + part.inner.bias).clamp(min=0)
    assert_close(part(x), hidden @ part.outer.weight.T + part.outer.bias)


@pytest.mark.parametrize("activation", [F.relu, F.gelu])
def test_mlp_is_applied_to_each_token(activation):
    """004: "MLP(X) = φ(X W_1) W_2; MLP(x_i) = φ(x_i W_1) W_2, for each token"; φ ReLU or GeLU, no bias."""
    part, x = FeedForward(5, 5, activation, bias=False).double(), double(2, 3, 5)
    w_1, w_2 = part.inner.weight.T, part.outer.weight.T
    assert_close(part(x), activation(x @ w_1) @ w_2)
    assert_close(part(x)[1, 2], part(x[1, 2]))
    assert {name for name, _ in part.named_parameters()} == {"inner.weight", "outer.weight"}


def test_transformer_block_top_to_bottom():
    """001: "u_norm = LayerNorm(u + X); z = W_2ᵀ ReLU(W_1ᵀ u_norm); z_norm = LayerNorm(z + u_norm)"."""
    block = EncoderBlock(6, 3, feed_forward=FeedForward(6, 11, bias=False)).double()
    x = double(2, 5, 6)
    norm1, norm2 = block.residual1.norm, block.residual2.norm
    u_norm = layer_norm(block.self_attention(x) + x, norm1.weight, norm1.bias)
    z = F.relu(u_norm @ block.feed_forward.inner.weight.T) @ block.feed_forward.outer.weight.T
    assert_close(block(x), layer_norm(z + u_norm, norm2.weight, norm2.bias))


def test_vision_transformer_equations():
    """004: "z_0 = [x_class; x_p¹E; …] + E_pos; z' = MSA(LN(z)) + z; z = MLP(LN(z')) + z'; y = LN(z_L⁰)"."""
    dim, patch, layers = 6, 2, 3
    embed, start, positions = PatchEmbedding(patch, 3, dim), ClassToken(dim), LearnedPositions(dim, 16)
    blocks = [EncoderBlock(dim, 2, feed_forward=FeedForward(dim, 11, F.gelu), placement=PreNorm) for _ in range(layers)]
    encoder = Encoder(blocks, LayerNorm(dim))
    for part in (embed, start, positions, encoder):
        part.double()
    images = double(2, 3, 6, 10)

    squares = [images[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] for i in range(3) for j in range(5)]
    flat = torch.stack([square.permute(0, 2, 3, 1).flatten(1) for square in squares], dim=1)  # (2, 15, P² · C)
    projected = flat @ embed.linear.weight.T + embed.linear.bias
    z = torch.cat([start.vector.expand(2, 1, -1), projected], dim=1) + positions.table.weight
    for block in blocks:
        norm1, norm2 = block.residual1.norm, block.residual2.norm
        z = block.self_attention(layer_norm(z, norm1.weight, norm1.bias)) + z
        z = block.feed_forward(layer_norm(z, norm2.weight, norm2.bias)) + z
    y = layer_norm(z[:, 0], encoder.norm.weight, encoder.norm.bias)
    assert_close(first_token(encoder(positions(start(embed(images))))), y)


def test_flatten_and_linear_output():
    """003: "apply a flatten layer: O^flatten ∈ R^(T·d_model). Now we apply a linear layer: ∈ R^(N_vocab-size)"."""
    output, x = FlattenOutput(5, 3, 7).double(), double(2, 5, 3)
    by_hand = x.reshape(2, 15) @ output.linear.weight.T + output.linear.bias
    assert_close(output(x), by_hand)
    assert_close(output(x[:, :4]), output(torch.cat([x[:, :4], torch.zeros(2, 1, 3)], dim=1).double()))


def test_stop_token_represents_the_sentence():
    """002: "Vector for stop word can be treated as representation of entire sentence (e.g. project its output …)"."""
    words = {"[START]": 1, "we": 2, "are": 3, "eating": 4, "bread": 5, "[STOP]": 6}
    ids = torch.tensor([[1, 2, 3, 4, 5, 6], [1, 4, 5, 6, 0, 0]])
    x = double(2, 6, 7)
    output = SequenceOutput(7, 3, pool=last_token).double()
    at_stop = x[ids == words["[STOP]"]]  # (2, 7)
    assert_close(last_token(x, ids != 0), at_stop)
    assert_close(output(x, ids != 0), at_stop @ output.linear.weight.T + output.linear.bias)


def test_multi_head_output_has_the_shape_of_its_input():
    """003: "O has the same number of rows and columns with X", W^O ∈ R^(h·d_v × d_model)."""
    layer = MultiHeadAttention(7, 3, key_dim=5, value_dim=2)
    assert layer.output.weight.T.shape == (3 * 2, 7)
    assert layer(torch.randn(2, 11, 7)).shape == (2, 11, 7)


def weights_of(network: nn.RNNBase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return network.weight_ih_l0, network.weight_hh_l0, network.bias_ih_l0, network.bias_hh_l0


def test_rnn_equation_step_by_step():
    """002: "h_t = tanh(W_hh h_{t-1} + W_hx x_t) = tanh(W (h_{t-1}; x_t))"."""
    rnn, x = Recurrent("rnn", 5, 3).double(), double(2, 7, 5)
    w_hx, w_hh, *biases = weights_of(rnn.network)
    for bias in biases:
        nn.init.zeros_(bias)
    both = torch.cat([w_hh, w_hx], dim=1)  # W
    h = torch.zeros(2, 3, dtype=torch.float64)
    states, last = rnn(x)
    for t in range(7):
        stacked = torch.tanh(torch.cat([h, x[:, t]], dim=1) @ both.T)
        h = torch.tanh(h @ w_hh.T + x[:, t] @ w_hx.T)
        assert_close(h, stacked)
        assert_close(states[:, t], h)
    assert_close(last.top, h)


def test_gru_equation_step_by_step():
    """000: "Even with LSTMs / GRUs …": gates decide how much is forgotten and how much is new."""
    gru, x = Recurrent("gru", 5, 3).double(), double(2, 7, 5)
    w_x, w_h, b_x, b_h = weights_of(gru.network)
    h = torch.zeros(2, 3, dtype=torch.float64)
    states, last = gru(x)
    for t in range(7):
        x_reset, x_update, x_new = (x[:, t] @ w_x.T + b_x).chunk(3, dim=1)
        h_reset, h_update, h_new = (h @ w_h.T + b_h).chunk(3, dim=1)
        reset, update = torch.sigmoid(x_reset + h_reset), torch.sigmoid(x_update + h_update)
        h = (1 - update) * torch.tanh(x_new + reset * h_new) + update * h
        assert_close(states[:, t], h)
    assert_close(last.top, h)


def test_lstm_equation_step_by_step():
    """002: "LSTMs Intuition: Additive Updates. Similar to ResNet!": c_t is only added to."""
    lstm, x = Recurrent("lstm", 5, 3).double(), double(2, 7, 5)
    w_x, w_h, b_x, b_h = weights_of(lstm.network)
    h = c = torch.zeros(2, 3, dtype=torch.float64)
    states, last = lstm(x)
    for t in range(7):
        enter, forget, new, leave = (x[:, t] @ w_x.T + b_x + h @ w_h.T + b_h).chunk(4, dim=1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
        h = torch.sigmoid(leave) * torch.tanh(c)
        assert_close(states[:, t], h)
    assert_close(last.top, h)
    assert_close(last.cell[-1], c)


def test_context_is_the_last_state():
    """002: "add a context vector c = h_4 and predict s_0 from h_4", for sentences of different lengths."""
    rnn, x, lengths = Recurrent("gru", 5, 3).double(), double(2, 6, 5), torch.tensor([4, 6])
    _, last = rnn(x, lengths)
    assert_close(last.top, torch.stack([rnn(x[:1, :4])[0][0, 3], rnn(x[1:])[0][0, 5]]))


def test_sum_of_lstm_states_as_sentence_embedding():
    """000: "New: E_s = sum of LSTM states", which stops where the sentence does."""
    lstm, x, lengths = Recurrent("lstm", 5, 3).double(), double(2, 6, 5), torch.tensor([4, 6])
    states, _ = lstm(x, lengths)
    by_hand = torch.stack([sum(lstm(x[:1, :4])[0][0]), sum(lstm(x[1:])[0][0])])
    assert_close(sum_of_states(states), by_hand)
