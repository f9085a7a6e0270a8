"""The configuration of models: their sizes, and the names of the parts they are assembled from.

A name is whatever the registry of its kind knows: `model.positions=rotary` is `POSITIONS["rotary"]` of
`clearhead.nn.positions`, and a part from outside the package is chosen in the same way.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from clearhead.config import Section
from clearhead.errors import ConfigError
from clearhead.nn import CELLS, FEED_FORWARDS, NORMS, PATCHES, PLACEMENTS, POOLS, POSITIONS, SCORES
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
PatchesName = Annotated[str, _name_in(PATCHES)]
CellName = Annotated[str, _name_in(CELLS)]
ActivationName = Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"]  # of `ACTIVATIONS`
BiasedMaps = Literal["neither", "qkv", "output", "all"]
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
    placement: PlacementName = Field("before", description="norm before, after, around or on the output of each part")
    feed_forward: FeedForwardName = Field("relu", description="activation of the feed-forward network")
    bias: bool = Field(True, description="linear maps have a bias")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the embedding and of each part's output")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of the attention weights (slower)")
    inner_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward network")
    tied: bool = Field(True, description="the output shares the embedding's matrix")
    # What other people's models have.
    embedding_scale: float | None = Field(None, gt=0, description="factor of the token vectors; none = √dim")
    embedding_dim: int | None = Field(None, ge=1, description="width of the token vectors before a matrix; none = dim")
    embedding_norm: bool = Field(False, description="normalise the token vectors before the first block")
    segments: int = Field(0, ge=0, description="vectors for the segments of a text; 0 = none")
    separator: int | None = Field(None, ge=0, description="token that ends a segment")
    first_norm: bool = Field(True, description="the first block normalises what its attention reads")
    norm_eps: float | None = Field(None, gt=0, description="ε of the norms; none = 1e-5")
    head_norm: NormName | None = Field(None, description="normalisation of every query and key; none = none")
    joint_norm: NormName | None = Field(None, description="normalisation of all heads' queries, or keys, as one vector")
    attention_bias: BiasedMaps | None = Field(None, description="which maps of attention have a bias; none = as bias")
    attention_scale: float | None = Field(None, gt=0, description="c of the score c q · k; none = the score's own")
    score_cap: float | None = Field(None, gt=0, description="largest score, by tanh; none = no limit")
    layer_windows: tuple[int | None, ...] | None = Field(None, description="window of each block; none = all alike")
    local_base: float | None = Field(None, gt=1, description="N of rotary positions in blocks of layer_windows")
    rotary_dim: int | None = Field(None, ge=2, description="numbers of a head that rotary positions rotate; none = all")
    rotary_factors: tuple[float, ...] | None = Field(None, description="divisor of each rotary pair's angle; none = 1")
    rotary_gain: float = Field(1.0, gt=0, description="factor of the rotary sines and cosines")
    position_buckets: int = Field(32, ge=4, description="numbers that T5's positions learn for distances")
    position_longest: int = Field(128, ge=2, description="distance from which T5's positions make no difference")
    decoder_layers: int | None = Field(None, ge=1, description="blocks of a decoder over an encoder; none = layers")
    source_input: Literal["shared", "tokens", "own"] | None = Field(
        None, description="what encoder and decoder share at their input; none = everything if tied, else nothing"
    )
    parallel: bool = Field(False, description="attention and feed-forward read the same vectors")
    shared_layers: bool = Field(False, description="all blocks have the same weights")
    output_bias: bool = Field(False, description="the output of a language model has a bias")
    output_transform: ActivationName | None = Field(
        None, description="activation of a dense layer with a norm before the output; none = no such layer"
    )
    output_cap: float | None = Field(None, gt=0, description="largest logit, by tanh; none = no limit")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.dim % self.heads and not (self.key_dim and self.value_dim):
            raise ConfigError(f"dim={self.dim} is not divisible by heads={self.heads}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ConfigError(f"heads={self.heads} is not divisible by kv_heads={self.kv_heads}")
        if self.layer_windows and len(self.layer_windows) != self.layers:
            raise ConfigError(f"layer_windows has {len(self.layer_windows)} entries for layers={self.layers}")
        if self.parallel and self.placement != "before":
            raise ConfigError(f"parallel needs placement=before, not placement={self.placement}")
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
    pool_transform: ActivationName | None = Field(
        None, description="activation of a dense layer after the pooling; none = no such layer"
    )


class UnitConfig(PooledConfig):
    """A model with one vector for a sequence."""

    vector_dim: int | None = Field(
        None, ge=1, description="width of the vector after a dense layer; none = dim, without such a layer"
    )
    unit_length: bool = Field(True, description="divide the vector by its length")


class EncoderConfig(ModelConfig):
    """A model that reads a text to label it."""

    ngrams: int = Field(1, ge=1, le=5, description="hashed n-grams of up to so many tokens have vectors too; 1 = none")
    causal: bool = Field(False, description="a token sees only those before it, as in a language model")


class WordFeatureConfig(EncoderConfig):
    """A model that labels words, or texts by their words."""

    features: int = Field(
        0, ge=0, description="rows for hashed features of words (beginning, ending, shape, neighbours); 0 = none"
    )


class PatchConfig(ModelConfig):
    """A model that reads images."""

    patch: int = Field(4, ge=1, description="side of a square patch, in pixels")
    patches: PatchesName = Field("linear", description="how patches become vectors: linear, convolution or residual")
    extra_tokens: int = Field(0, ge=0, description="trainable tokens between the class token and the patches")


class PooledPatchConfig(PatchConfig, PooledConfig):
    """A model that reads images and has one output for each."""


class RecurrentPatchConfig(RecurrentConfig, PatchConfig):
    """A model that reads images and may have a recurrent network."""
