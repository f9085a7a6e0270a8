"""One label for a text, one for each of its tokens, or one vector: an encoder, and what follows it.

B batch, T tokens, D width, C classes
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from clearhead.models import build
from clearhead.models.build import Model, TokenInput
from clearhead.models.config import ModelConfig, PooledConfig, UnitConfig, WordFeatureConfig
from clearhead.nn import (
    Dropout,
    FeatureEmbedding,
    NgramEmbedding,
    SequenceOutput,
    TokenOutput,
    WideOutput,
    padding_mask,
)


class TextEncoder(nn.Module):
    """From ids to one vector for each token; every token sees all the others, or all before it, and none padding."""

    def __init__(self, config: ModelConfig, size: int, pad: int = 0, ngrams: int = 1, causal: bool = False):
        super().__init__()
        self.config, self.pad, self.causal = config, pad, causal
        self.tokens = TokenInput(config, size, pad)
        self.ngrams = NgramEmbedding(ngrams, config.dim)
        self.stack = build.encoder(config, causal)

    def token_ids(self, inputs: Tensor) -> Tensor:
        """(B, T): the ids in what the encoder reads."""
        return inputs

    def real(self, inputs: Tensor) -> Tensor:
        """(B, T): True for what is not padding."""
        return self.token_ids(inputs) != self.pad

    def embed(self, ids: Tensor) -> Tensor:
        """(B, T) -> the vectors (B, T, D) that the stack reads."""
        return self.ngrams(ids, self.tokens(ids))

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, D)."""
        mask = build.self_mask(self.config, self.causal) & padding_mask(ids, self.pad)
        return self.stack(self.embed(ids), mask=mask)


class WordEncoder(TextEncoder):
    """From words as their ids and features to one vector for each word."""

    def __init__(self, config: WordFeatureConfig, size: int, pad: int = 0):
        super().__init__(config, size, pad, config.ngrams)
        self.features = FeatureEmbedding(config.features, config.dim, config.dropout)

    def token_ids(self, words: Tensor) -> Tensor:
        return words[..., 0]

    def embed(self, words: Tensor) -> Tensor:
        ids, features = words[..., 0], words[..., 1:]
        return self.features(features, super().embed(ids))

    def forward(self, words: Tensor) -> Tensor:
        """(B, T, 1 + F): each word's id, then the numbers of its features -> (B, T, D)."""
        mask = build.self_mask(self.config, causal=False) & padding_mask(words[..., 0], self.pad)
        return self.stack(self.embed(words), mask=mask)


class EncoderModel(Model, ABC):
    """A text encoder, and an output for what it reads."""

    encoder: TextEncoder

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder.stack}

    @abstractmethod
    def head(self, states: Tensor, ids: Tensor) -> Tensor:
        """The output for the states (B, T, D) of the tokens."""

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) or (B, T, 1 + F) -> what `head` returns."""
        return self.head(self.encoder(ids), ids)


class Classifier(EncoderModel):
    """One label for a text, from the class token, the mean or the last token."""

    def __init__(
        self,
        config: PooledConfig,
        size: int,
        classes: int,
        pad: int = 0,
        ngrams: int = 1,
        encoder: TextEncoder | None = None,
        output: SequenceOutput | None = None,
    ):
        super().__init__()
        self.encoder = encoder or TextEncoder(config, size, pad, ngrams)
        self.dropout = Dropout(config.dropout)
        self.output = output or build.pooled_output(config, classes)

    def head(self, states: Tensor, ids: Tensor) -> Tensor:
        """-> logits (B, C); the class token stands first if the pool is `class`."""
        return self.output(self.dropout(states), self.encoder.real(ids))


class WideClassifier(Classifier):
    """A classifier with a linear model of n-grams beside its network."""

    output: WideOutput

    def __init__(self, config: PooledConfig, size: int, classes: int, pad: int, encoder: TextEncoder, rows: int):
        super().__init__(config, size, classes, pad, encoder=encoder, output=build.wide_output(config, classes, rows))

    def head(self, states: Tensor, ids: Tensor) -> Tensor:
        """-> logits (B, C)."""
        return self.output(self.dropout(states), self.encoder.real(ids), self.encoder.token_ids(ids))


class Embedder(EncoderModel):
    """One vector for a text."""

    def __init__(self, config: UnitConfig, size: int, pad: int = 0, ngrams: int = 1, causal: bool = False):
        super().__init__()
        self.encoder = TextEncoder(config, size, pad, ngrams, causal)
        self.output = build.pooled_vector(config)

    def head(self, states: Tensor, ids: Tensor) -> Tensor:
        """-> (B, D), or as wide as its dense layer."""
        return self.output(states, self.encoder.real(ids))


class Tagger(EncoderModel):
    """One label for each token; with a `WordEncoder`, for each word."""

    def __init__(self, config: ModelConfig, size: int, classes: int, pad: int = 0, encoder: TextEncoder | None = None):
        super().__init__()
        self.encoder = encoder or TextEncoder(config, size, pad)
        self.dropout = Dropout(config.dropout)
        self.output = TokenOutput(config.dim, classes, transform=build.output_transform(config, config.dim))

    def head(self, states: Tensor, ids: Tensor) -> Tensor:
        """-> logits (B, T, C)."""
        return self.output(self.dropout(states))
