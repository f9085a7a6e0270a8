"""The configuration of models: their sizes, and the names of the parts they are assembled from.

A name is whatever the registry of its kind knows: `model.positions=rotary` is `POSITIONS["rotary"]` of
`clearhead.nn.positions`, and a part from outside the package is chosen in the same way.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from clearhead.config import Section
from clearhead.errors import ConfigError
from clearhead.nn import CELLS, FEED_FORWARDS, NORMS, PLACEMENTS, POOLS, POSITIONS, SCORES
from clearhead.registry import Registry


def _name_in(registry: Registry[Any]) -> AfterValidator:
    """Accepts the names of a registry; an unknown one is an error that suggests the nearest."""

    def check(name: str) -> str:
        registry[name]
        return name

    return AfterValidator(check)


ScoreName = Annotated[str, _name_in(SCORES)]
PositionName = Annotated[str, _name_in(POSITIONS)]
NormName = Annotated[str, _name_in(NORMS)]
PlacementName = Annotated[str, _name_in(PLACEMENTS)]
FeedForwardName = Annotated[str, _name_in(FEED_FORWARDS)]
PoolName = Annotated[str, _name_in(POOLS)]
CellName = Annotated[str, _name_in(CELLS)]
ContextName = Literal["last", "sum", "attention"]


class ModelConfig(Section):
    """The sizes and parts of an attention model."""

    dim: int = Field(128, ge=1, description="width of every token vector, D")
    heads: int = Field(4, ge=1, le=1 << 16, description="attention heads, H")
    layers: int = Field(4, ge=1, description="blocks in each stack")
    kv_heads: int | None = Field(None, ge=1, description="key-value heads shared by groups of heads; none = heads")
    key_dim: int | None = Field(None, ge=1, description="size of one head's queries and keys, d_k; none = dim / heads")
    value_dim: int | None = Field(None, ge=1, description="size of one head's values, d_v; none = dim / heads")
    inner: int | None = Field(None, ge=1, description="hidden width of the feed-forward network; none = 4 × dim")
    score: ScoreName = Field("scaled_dot", description="alignment score between a query and a key")
    hard: bool = Field(False, description="hard attention: pick one key instead of averaging (straight-through)")
    window: int | None = Field(None, ge=1, description="keys a query may see on each side, itself included")
    positions: PositionName = Field("sinusoidal", description="position scheme")
    position_base: float = Field(10000.0, gt=1, description="N of the sinusoidal and rotary positions")
    position_concat: bool = Field(False, description="concatenate input positions instead of adding them")
    max_length: int = Field(1024, ge=1, description="rows of a learned position table")
    norm: NormName = Field("layer", description="normalisation of token vectors")
    placement: PlacementName = Field("before", description="norm before, after or around each part of a block")
    feed_forward: FeedForwardName = Field("relu", description="activation of the feed-forward network")
    bias: bool = Field(True, description="linear maps have a bias")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the embedding and of each part's output")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of the attention weights (slower)")
    inner_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward network")
    tied: bool = Field(True, description="the output shares the embedding's matrix")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.dim % self.heads and not (self.key_dim and self.value_dim):
            raise ConfigError(f"dim={self.dim} is not divisible by heads={self.heads}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ConfigError(f"heads={self.heads} is not divisible by kv_heads={self.kv_heads}")
        return self


class RecurrentConfig(ModelConfig):
    """A model that may have a recurrent network in place of attention."""

    cell: CellName = Field("lstm", description="recurrent cell (rnn)")


class AlignedConfig(RecurrentConfig):
    """A model that may have a recurrent decoder over a recurrent encoder."""

    context: ContextName = Field("attention", description="what the decoder sees of the source (rnn)")


class PooledConfig(ModelConfig):
    """A model with one output for a sequence."""

    pool: PoolName = Field("mean", description="pooling: the vector that represents the sequence")


class EncoderConfig(ModelConfig):
    """A model that reads a text to label it."""

    ngrams: int = Field(1, ge=1, le=5, description="hashed n-grams of up to so many tokens have vectors too; 1 = none")


class PatchConfig(ModelConfig):
    """A model that reads images."""

    patch: int = Field(4, ge=1, description="side of a square patch, in pixels")


class PooledPatchConfig(PatchConfig, PooledConfig):
    """A model that reads images and has one output for each."""


class RecurrentPatchConfig(RecurrentConfig, PatchConfig):
    """A model that reads images and may have a recurrent network."""
