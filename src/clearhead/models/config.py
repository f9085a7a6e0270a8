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
    heads: int = Field(4, ge=1, description="attention heads, H")
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


class TranslateModel(ModelConfig):
    """A model that reads one sentence and writes another."""

    architecture: Literal["transformer", "rnn"] = Field("transformer", description="attention, or recurrent networks")
    cell: CellName = Field("gru", description="recurrent cell (rnn)")
    context: ContextName = Field("attention", description="what the decoder sees of the source (rnn)")


class TextModel(ModelConfig):
    """A language model."""

    architecture: Literal["transformer", "rnn"] = Field("transformer", description="attention, or a recurrent network")
    cell: CellName = Field("lstm", description="recurrent cell (rnn)")
    objective: Literal["next", "masked"] = Field("next", description="predict the next token, or masked ones")
    length: int = Field(256, ge=1, description="tokens of running text in one training window")


class ClassifyModel(ModelConfig):
    """A classifier of texts."""

    pool: PoolName = Field("mean", description="pooling: the vector that represents the text")


class TagModel(ModelConfig):
    """A tagger of tokens."""


class VisionModel(ModelConfig):
    """A classifier of images."""

    patch: int = Field(4, ge=1, description="side of a square patch, in pixels")
    pool: PoolName = Field("class", description="pooling: the vector that represents the image")


class CaptionModel(ModelConfig):
    """A model that describes an image."""

    architecture: Literal["cross", "sequence", "rnn"] = Field(
        "cross", description="a decoder with cross-attention to patches, patches and text as one sequence, or an rnn"
    )
    patch: int = Field(8, ge=1, description="side of a square patch, in pixels")
    cell: CellName = Field("lstm", description="recurrent cell (rnn)")


class WordsModel(Section):
    """Word vectors: skip-gram."""

    dim: int = Field(100, ge=1, description="size of a word vector")
    window: int = Field(5, ge=1, description="context words on each side")
    negatives: int = Field(5, ge=0, description="noise words for each context word; 0 = full softmax")
    subsample: float = Field(1e-3, ge=0, description="words more frequent than this share are subsampled; 0 = never")
    min_count: int = Field(5, ge=1, description="rarer words are left out")


MODELS: dict[str, type[ModelConfig | WordsModel]] = {
    "translate": TranslateModel,
    "lm": TextModel,
    "classify": ClassifyModel,
    "tag": TagModel,
    "vision": VisionModel,
    "caption": CaptionModel,
    "words": WordsModel,
}
