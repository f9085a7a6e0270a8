"""What the parity tests share: unequal sizes, inputs, masks, and our parts put together as the references do it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.nn import Decoder, Encoder, Mask, TokenEmbedding, additive_mask, length_mask, padding_mask

B, T, S = 2, 5, 11  # batch, tokens, tokens of the memory
HEADS, HEAD_DIM, DIM, INNER, LAYERS = 3, 7, 21, 17, 2
VOCABULARY = 31
LENGTHS, MEMORY_LENGTHS = torch.tensor([5, 3]), torch.tensor([4, 11])

REAL = length_mask(LENGTHS, T)  # (B, 1, T)
MEMORY_REAL = length_mask(MEMORY_LENGTHS, S)  # (B, 1, S)
# Padding stands on the right, so every row of weights has something to see. A padded query then looks at the real
# keys, on their side as on ours, and whole tensors can be compared: no row of them is NaN or left undefined.
MASKS = {
    "open": Mask(),
    "causal": Mask(causal=True),
    "padding": Mask(table=REAL),
    "causal and padding": Mask(causal=True) & REAL,
}


def tokens(length: int = T, dim: int = DIM) -> Tensor:
    return torch.randn(B, length, dim, requires_grad=True)


def sentences(lengths: Tensor, longest: int) -> Tensor:
    """(B, longest) ids, 0 where padded."""
    ids = torch.randint(1, VOCABULARY, (B, longest))
    return ids * length_mask(lengths, longest).squeeze(1)


def added(mask: Mask, queries: int, keys: int) -> Tensor:
    """The mask as transformers adds it to the scores: (B or 1, 1, T, S)."""
    table = mask.table_of(queries, keys)
    return additive_mask(table if table.dim() == 3 else table.unsqueeze(0), torch.get_default_dtype()).unsqueeze(1)


class Body(nn.Module):
    """Tokens, positions and one stack: GPT-2, Llama."""

    def __init__(self, embedding: TokenEmbedding, positions: nn.Module, encoder: Encoder):
        super().__init__()
        self.embedding, self.positions, self.encoder = embedding, positions, encoder

    def forward(self, ids: Tensor, mask: Mask) -> Tensor:
        return self.encoder(self.positions(self.embedding(ids)), mask)


class Translator(nn.Module):
    """Two stacks that share tokens and positions: Marian, T5."""

    def __init__(self, embedding: TokenEmbedding, positions: nn.Module, encoder: Encoder, decoder: Decoder):
        super().__init__()
        self.embedding, self.positions, self.encoder, self.decoder = embedding, positions, encoder, decoder

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        seen, written = padding_mask(source), Mask(causal=True) & padding_mask(target)
        memory = self.encoder(self.positions(self.embedding(source)), seen)
        return self.decoder(self.positions(self.embedding(target)), memory, written, seen)


def translation(theirs: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """The same of a Marian or T5 model."""
    return theirs(
        input_ids=source,
        attention_mask=source != 0,
        decoder_input_ids=target,
        decoder_attention_mask=target != 0,
    ).last_hidden_state
