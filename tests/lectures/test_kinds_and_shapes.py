"""Kinds of attention, shared and free head sizes, and the three shapes of a Transformer from the same parts."""

import importlib

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    Mask,
    MultiHeadAttention,
    SequenceOutput,
    SinusoidalPositions,
    TokenEmbedding,
    TokenOutput,
    attention,
    causal_mask,
    fused_attention,
    pick_one,
    window_mask,
)

attention_module = importlib.import_module("clearhead.nn.attention")  # `clearhead.nn.attention` is the function


def test_global_attention_sees_everything():
    """000: "Global/Soft: Attending to the entire input state space"."""
    torch.manual_seed(0)
    _, weights = attention(torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 2))
    assert (weights > 0).all()


def test_hard_attention_picks_one():
    """000: "Local/Hard: Attending to the part of input state space": the output is one of the values."""
    torch.manual_seed(1)
    q, k, v = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 2)
    output, weights = attention(q, k, v, normalize=pick_one)
    best = (q @ k.T).argmax(-1)
    assert_close(weights, torch.eye(7)[best])
    assert_close(output, v[best])


@pytest.mark.parametrize("window", [1, 3, 200])
def test_local_attention_sees_its_neighbours(window):
    """000: "Local … a patch of the input": each position sees those nearer than the window."""
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, 3, 307, 5) for _ in range(3))
    distance = (torch.arange(307).unsqueeze(-1) - torch.arange(307)).abs()
    assert_close(window_mask(307, window), distance < window)
    assert_close(fused_attention(q, k, v, Mask(window=window)), attention(q, k, v, distance < window)[0])


def test_local_attention_is_linear_in_length(monkeypatch):
    """004: "Self-attention scales quadratically with sequence length"; with a window the work grows like the length."""

    scores = []
    kernel = attention_module._kernel

    def counting(q, k, *rest, **named):
        scores.append(q.size(-2) * k.size(-2))
        return kernel(q, k, *rest, **named)

    monkeypatch.setattr(attention_module, "_kernel", counting)

    def work(length: int, mask: Mask) -> int:
        scores.clear()
        x = torch.zeros(1, 1, length, 2)
        fused_attention(x, x, x, mask)
        return sum(scores)

    for mask in (Mask(window=64), Mask(causal=True, window=64)):
        assert 1.9 < work(4096, mask) / work(2048, mask) < 2.1
    assert work(512, Mask()) / work(256, Mask()) == 4


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_groups_of_heads_share_keys_and_values(kv_heads):
    """Row 11: a layer whose heads share keys and values is the full layer with these repeated."""
    torch.manual_seed(3)
    shared = MultiHeadAttention(30, 6, kv_heads=kv_heads).double()
    full = MultiHeadAttention(30, 6).double()
    state = shared.state_dict()
    for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
        by_head = state[name].unflatten(0, (kv_heads, -1))
        state[name] = by_head.repeat_interleave(6 // kv_heads, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    x = torch.randn(2, 7, 30, dtype=torch.float64)
    assert_close(shared(x, mask=Mask(causal=True)), full(x, mask=causal_mask(7)))
    assert_close(shared.weights(x), full.weights(x))


@pytest.mark.parametrize(("key_dim", "value_dim"), [(2, 7), (7, 2), (1, 1), (5, None), (None, 3)])
def test_key_and_value_sizes_are_free(key_dim, value_dim):
    """004: "W_V,h ∈ R^(D × D_V), W_K,h ∈ R^(D × D_K)": neither need be D / H."""
    torch.manual_seed(4)
    layer = MultiHeadAttention(12, 3, key_dim=key_dim, value_dim=value_dim).double()
    x, memory = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 11, 12, dtype=torch.float64)
    size = value_dim or 4
    v = layer.value(memory).unflatten(-1, (3, size)).transpose(1, 2)
    mixed = (layer.weights(x, memory) @ v).transpose(1, 2).flatten(-2)
    assert_close(layer(x, memory), layer.output(mixed))


WORDS, DIM, HEADS = 17, 12, 3


class Parts:
    """The parts that all three shapes are made of."""

    def __init__(self):
        torch.manual_seed(5)
        self.embed, self.positions = TokenEmbedding(WORDS, DIM).double(), SinusoidalPositions(DIM).double()
        self.encoder = Encoder([EncoderBlock(DIM, HEADS) for _ in range(2)]).double()
        self.decoder = Decoder([DecoderBlock(DIM, HEADS) for _ in range(2)]).double()
        self.words = TokenOutput(DIM, WORDS, tied=self.embed.table).double()
        self.label = SequenceOutput(DIM, 5).double()

    def tokens(self, ids: Tensor, start: int = 0) -> Tensor:
        return self.positions(self.embed(ids), start)


def test_encoder_only():
    """004: "Encoders (e.g., classification): produce a fixed output size and process all inputs simultaneously"."""
    parts = Parts()
    for length in (3, 7, 11):
        ids = torch.randint(WORDS, (2, length))
        logits = parts.label(parts.encoder(parts.tokens(ids)))
        assert logits.shape == (2, 5)
        changed = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % WORDS], dim=1)
        before, after = (parts.encoder(parts.tokens(x)) for x in (ids, changed))
        assert ((before - after).norm(dim=-1) > 1e-6).all()  # every token sees the last one


def test_decoder_only():
    """004: "Auto-regressively sample the next token as x_{t+1} ~ softmax(f(x_1, …, x_t)) and use it as new input"."""
    parts = Parts()
    prompt = torch.randint(WORDS, (2, 3))

    def next_token(hidden: Tensor) -> Tensor:
        return parts.words(hidden)[:, -1:].argmax(-1)

    ids, cached, cache = prompt, prompt, parts.encoder.make_cache()
    hidden = parts.encoder(parts.tokens(prompt), mask=Mask(causal=True), cache=cache)
    for step in range(7):
        ids = torch.cat([ids, next_token(parts.encoder(parts.tokens(ids), mask=causal_mask(3 + step)))], dim=1)
        cached = torch.cat([cached, next_token(hidden)], dim=1)
        hidden = parts.encoder(parts.tokens(cached[:, -1:], 3 + step), mask=Mask(causal=True), cache=cache)
    assert ids.shape == (2, 10)
    assert_close(cached, ids)


def test_encoder_decoder():
    """004: "First encode the whole input and then decode token by token"; 002: from [START], "token by token"."""
    parts = Parts()
    source, start = torch.randint(WORDS, (2, 5)), torch.zeros(2, 1, dtype=torch.long)
    memory = parts.encoder(parts.tokens(source))
    written, logits, cache = start, [], parts.decoder.make_cache()
    for step in range(7):
        hidden = parts.decoder(parts.tokens(written[:, -1:], step), memory, cache=cache)
        logits.append(parts.words(hidden))
        written = torch.cat([written, logits[-1].argmax(-1)], dim=1)
    at_once = parts.words(parts.decoder(parts.tokens(written[:, :-1]), memory))  # teacher forcing
    assert_close(at_once, torch.cat(logits, dim=1))


def test_queries_from_the_decoder_keys_and_values_from_the_encoder():
    """003 writes "Q = K = O_encoder, V = O_decoder"; the paper and we: Q from the decoder, K and V from the encoder."""
    torch.manual_seed(6)
    layer = MultiHeadAttention(DIM, HEADS).double()
    decoder, encoder = torch.randn(2, 5, DIM, dtype=torch.float64), torch.randn(2, 7, DIM, dtype=torch.float64)
    projected = layer.query(decoder), layer.key(encoder), layer.value(encoder)
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in projected)
    mixed, _ = attention(q, k, v)
    assert_close(layer(decoder, encoder), layer.output(mixed.transpose(1, 2).flatten(-2)))


def test_encoder_only_and_decoder_only_share_their_weights():
    """004: "The transformer architecture can be used in different ways": only the mask differs."""
    parts = Parts()
    x = parts.tokens(torch.randint(WORDS, (2, 7)))
    both_ways, causal = parts.encoder(x), parts.encoder(x, mask=Mask(causal=True))
    assert (both_ways - causal)[:, :-1].norm(dim=-1).min() > 1e-3
    assert_close(parts.encoder(x[:, :1]), causal[:, :1])  # the first token, alone, sees the same either way
