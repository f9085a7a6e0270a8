"""What all models are built with: their base classes, parts as a `ModelConfig` names them, and the first weights.

B batch, T tokens, D width
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from clearhead.models.config import ModelConfig, PooledConfig, UnitConfig
from clearhead.nn import (
    ACTIVATIONS,
    FEED_FORWARDS,
    NORMS,
    PLACEMENTS,
    POOLS,
    POSITIONS,
    SCORES,
    Cache,
    CappedScore,
    Decoder,
    DecoderBlock,
    DotScore,
    Dropout,
    Encoder,
    EncoderBlock,
    GrowingCache,
    InputPositions,
    Mask,
    MultiHeadAttention,
    NoNorm,
    OneSegment,
    ParallelBlock,
    PooledVector,
    PositionSizes,
    RelativePositions,
    SegmentEmbedding,
    SequenceOutput,
    SoftCap,
    TokenEmbedding,
    TokenOutput,
    Transform,
    UnitLength,
    WideOutput,
    WindowCache,
    add_positions,
    concatenate_positions,
    pick_one,
    softmax,
)
from clearhead.nn.norm import MakeNorm
from clearhead.nn.pooling import VECTORS, Pool
from clearhead.nn.scores import Score


class Model(nn.Module):
    """The base of all systems."""

    is_causal_lm: ClassVar[bool] = False  # predicts each token of a text from those before it

    def stacks(self) -> dict[str, nn.Module]:
        """What reads tokens layer by layer: an `encoder`, a `decoder` (it predicts tokens), or both in this order."""
        return {}


class TransformerDecoder(Model, ABC):
    """A Transformer that generates tokens: engines run its decoder stack step by step."""

    output: TokenOutput

    @property
    @abstractmethod
    def decoder_input(self) -> TokenInput:
        """The embedding of generated tokens."""

    @property
    @abstractmethod
    def decoder_stack(self) -> Encoder | Decoder:
        """The blocks between a token and the prediction of the next."""


# --- parts as a configuration names them ---


class TokenInput(nn.Module):
    """From ids to vectors: token embedding, position, dropout."""

    def __init__(self, config: ModelConfig, size: int, pad: int | None = None):
        super().__init__()
        width = token_dim(config)
        scale = width**0.5 if config.embedding_scale is None else config.embedding_scale
        self.tokens = TokenEmbedding(size, width, pad=pad, scale=scale)
        self.positions = input_positions(config, config.max_length)
        embedded = input_dim(config)
        segments = SegmentEmbedding(config.segments, embedded, config.separator) if config.segments else None
        self.segments = segments or OneSegment()
        self.norm = make_norm(config)(embedded) if config.embedding_norm else NoNorm()
        self.project = nn.Identity() if embedded == config.dim else nn.Linear(embedded, config.dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, T) ids of the tokens from position `start` on -> (B, T, D)."""
        x = self.segments(ids, self.positions(self.tokens(ids), start))
        return self.dropout(self.project(self.norm(x)))

    @property
    def is_sum(self) -> bool:
        """Whether it is the sum of token and position, as native code computes it."""
        plain = type(self.norm) is NoNorm and type(self.project) is nn.Identity
        return plain and type(self.segments) is OneSegment


def input_dim(config: ModelConfig) -> int:
    """Width of the vectors that tokens and positions give together."""
    return config.dim if config.embedding_dim is None else config.embedding_dim


def token_dim(config: ModelConfig) -> int:
    """Width of a token before its position: all of D, or what a concatenated position leaves of it."""
    return input_dim(config) - _position_dim(config) if config.position_concat else input_dim(config)


def _position_dim(config: ModelConfig) -> int:
    """Width of a position at the input: all of D when added, a quarter when concatenated."""
    return input_dim(config) // 4 if config.position_concat else input_dim(config)


def token_output(config: ModelConfig, size: int, tied: nn.Embedding) -> TokenOutput:
    """The output of a language model, which may share the embedding's matrix."""
    width = config.dim if config.output_transform is None else input_dim(config)
    return TokenOutput(
        width,
        size,
        bias=config.output_bias,
        tied=tied if config.tied else None,
        transform=output_transform(config, width),
        cap=None if config.output_cap is None else SoftCap(config.output_cap),
    )


def output_transform(config: ModelConfig, width: int) -> Transform | None:
    """The dense layer with a norm before an output of this width."""
    name = config.output_transform
    return None if name is None else Transform(config.dim, width, ACTIVATIONS[name], make_norm(config))


def pooled_output(config: PooledConfig, classes: int) -> SequenceOutput:
    """The output of a model with one label for a sequence."""
    return SequenceOutput(*_pooled(config, classes))


def wide_output(config: PooledConfig, classes: int, rows: int) -> WideOutput:
    """The same with a linear model of n-grams beside it."""
    return WideOutput(*_pooled(config, classes), rows=rows)


def _pooled(config: PooledConfig, classes: int) -> tuple[int, int, Pool, nn.Module | None]:
    name = config.pool_transform
    pooler = None if name is None else Transform(config.dim, config.dim, ACTIVATIONS[name])
    transform = pooler or output_transform(config, config.dim)
    return config.dim * VECTORS.get(config.pool, 1), classes, POOLS[config.pool], transform


def pooled_vector(config: UnitConfig) -> PooledVector:
    """The output of a model with one vector for a sequence."""
    activation = nn.Identity() if config.pool_transform is None else ACTIVATIONS[config.pool_transform]
    dense = None if config.vector_dim is None else Transform(config.dim, config.vector_dim, activation)
    return PooledVector(POOLS[config.pool], UnitLength() if config.unit_length else None, dense)


def input_positions(config: ModelConfig, max_length: int) -> InputPositions:
    """The positions at the input."""
    return POSITIONS[config.positions].at_input(_position_sizes(config, max_length))


def relative_positions(config: ModelConfig, causal: bool, layers: int) -> list[RelativePositions]:
    """The positions inside the heads of each block of a stack; blocks that see equally far share them."""
    sizes = _position_sizes(config, config.max_length, causal)
    scheme = POSITIONS[config.positions]
    shared = scheme.in_heads(sizes)
    if config.local_base is None:
        return [shared] * layers
    local = scheme.in_heads(replace(sizes, base=config.local_base, rotary_factors=None, rotary_gain=1.0))
    return [shared if window is None else local for window in layer_windows(config, layers)]


def layer_windows(config: ModelConfig, layers: int) -> tuple[int | None, ...]:
    """The window of each block, where it differs from the model's."""
    return config.layer_windows or (None,) * layers


def _position_sizes(config: ModelConfig, max_length: int, causal: bool = False) -> PositionSizes:
    return PositionSizes(
        dim=_position_dim(config),
        heads=config.heads,
        key_dim=config.key_dim or config.dim // config.heads,
        max_length=max_length,
        base=config.position_base,
        combine=concatenate_positions if config.position_concat else add_positions,
        causal=causal,
        rotary_dim=config.rotary_dim,
        rotary_factors=config.rotary_factors,
        rotary_gain=config.rotary_gain,
        buckets=config.position_buckets,
        longest=config.position_longest,
    )


def self_mask(config: ModelConfig, causal: bool, window: int | None = None) -> Mask:
    """The mask of self-attention without padding; `window` may narrow the configured one."""
    return Mask(causal=causal, window=smaller_window(config.window, window))


def make_cache(config: ModelConfig, window: int | None = None) -> Cache:
    """An empty cache: of fixed size if there is a window, else growing."""
    window = smaller_window(config.window, window)
    return GrowingCache() if window is None else WindowCache(window)


def smaller_window(a: int | None, b: int | None) -> int | None:
    """The smaller of two windows; None = no limit."""
    return min((each for each in (a, b) if each is not None), default=None)


def make_norm(config: ModelConfig, name: str | None = None) -> MakeNorm:
    """The norm of a model, or the one called `name`, with the model's ε."""
    norm = NORMS[name or config.norm]
    return norm if config.norm_eps is None else partial(norm, eps=config.norm_eps)  # type: ignore[call-arg]


def make_score(config: ModelConfig) -> Score:
    """The score of a query and a key."""
    score = SCORES[config.score](config.key_dim or config.dim // config.heads, config.heads)
    score = score if config.attention_scale is None else DotScore(config.attention_scale)
    return score if config.score_cap is None else CappedScore(score, config.score_cap)


def multi_head(
    config: ModelConfig, relative: RelativePositions | None = None, window: int | None = None
) -> MultiHeadAttention:
    """One attention layer."""
    biased = config.attention_bias or ("all" if config.bias else "neither")
    return MultiHeadAttention(
        config.dim,
        config.heads,
        kv_heads=config.kv_heads,
        key_dim=config.key_dim,
        value_dim=config.value_dim,
        score=make_score(config),
        normalize=pick_one if config.hard else softmax,
        relative=relative,
        head_norm=NoNorm if config.head_norm is None else make_norm(config, config.head_norm),
        joint_norm=None if config.joint_norm is None else make_norm(config, config.joint_norm),
        window=window,
        bias=biased in ("all", "qkv"),
        output_bias=biased in ("all", "output"),
        dropout=config.attention_dropout,
    )


def _block_parts(config: ModelConfig) -> dict[str, Any]:
    make = FEED_FORWARDS[config.feed_forward]
    return {
        "feed_forward": make(config.dim, config.inner, bias=config.bias, dropout=config.inner_dropout),
        "norm": make_norm(config),
        "placement": PLACEMENTS[config.placement],
        "dropout": config.dropout,
    }


def _last_norm(config: ModelConfig) -> nn.Module | None:
    return make_norm(config)(config.dim) if PLACEMENTS[config.placement].final_norm else None


def encoder(config: ModelConfig, causal: bool = False) -> Encoder:
    """A stack of self-attention blocks; `causal` for a decoder-only model."""
    kind, layers = ParallelBlock if config.parallel else EncoderBlock, config.layers
    places = zip(relative_positions(config, causal, layers), layer_windows(config, layers), strict=True)
    blocks = [
        kind(config.dim, config.heads, attention=multi_head(config, relative, window), **_block_parts(config))
        for relative, window in places
    ]
    if not config.first_norm:
        blocks[0].residual1.norm = NoNorm()
    if config.shared_layers:
        for block in blocks[1:]:
            share_weights(block, blocks[0])
    return Encoder(blocks, _last_norm(config))


def share_weights(block: nn.Module, first: nn.Module) -> None:
    """Give a block the weights of another; it stays a module of its own, which can be looked at by itself."""
    for part, other in zip(block.modules(), first.modules(), strict=True):
        for name, weight in other.named_parameters(recurse=False):
            setattr(part, name, weight)


def decoder(config: ModelConfig) -> Decoder:
    """A stack of blocks with cross-attention to an encoder's output."""
    blocks = [
        DecoderBlock(
            config.dim,
            config.heads,
            attention=multi_head(config, relative),
            cross_attention=multi_head(config),
            **_block_parts(config),
        )
        for relative in relative_positions(config, True, config.decoder_layers or config.layers)
    ]
    return Decoder(blocks, _last_norm(config))


def token_embeddings(model: nn.Module) -> list[TokenEmbedding]:
    """The token embeddings of a model."""
    return [part for part in model.modules() if isinstance(part, TokenEmbedding)]


def recompute_blocks(model: nn.Module) -> None:
    """Store no activations inside blocks (gradient checkpointing): less memory, more time."""
    for block in model.modules():
        if isinstance(block, EncoderBlock | DecoderBlock):
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]


# --- the first weights ---

GATES = {"RNN_TANH": 1, "GRU": 3, "LSTM": 4}
FORGET = 1  # index of the forget gate among the four of an LSTM

_skipped = ContextVar("skipped", default=False)  # inside without_initialisation


@torch.no_grad()
def initialise(model: nn.Module) -> nn.Module:
    """Initialise the weights of a new model in place; returns it.

        linear maps          Xavier: an output has the variance of an input, for any width; biases 0
        token vectors        unit variance after scaling, like the positions added to them; small (0.02) where no
                             position is added and no recurrent network reads them: a large vector, tied to the
                             output, would begin by predicting itself
        ends of residuals    divided by √(number of sums in the stack), so that the sum does not grow with the depth
        recurrent networks   each gate's matrix on the state is orthogonal, so that a state neither grows nor fades;
                             the bias of an LSTM's forget gate is 1, so that it begins by remembering

    Parts that initialise themselves (positions, scores, norms) are left alone. Only torch's generator is used, module
    by module: the same seed gives the same weights.
    """
    if _skipped.get():
        return model
    parts = list(model.modules())
    tied = {id(part.weight) for part in parts if isinstance(part, nn.Embedding)}
    recurrent = any(isinstance(part, nn.RNNBase) for part in parts)
    for part in parts:
        if isinstance(part, nn.Linear) and id(part.weight) not in tied:
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.RNNBase):
            _initialise_recurrent(part)
        elif isinstance(part, TokenInput) and not part.positions.has_vectors and not recurrent:
            part.tokens.start_from(0.02 * torch.randn_like(part.tokens.table.weight))
    for stack in parts:
        if isinstance(stack, Encoder | Decoder):
            _shrink_residuals(stack)
    return model


def _initialise_recurrent(network: nn.RNNBase) -> None:
    for name, weight in network.named_parameters():
        gates = weight.chunk(GATES[network.mode])
        if name.startswith("bias"):
            nn.init.zeros_(weight)
        else:
            start = nn.init.xavier_uniform_ if name.startswith("weight_ih") else nn.init.orthogonal_
            for gate in gates:
                start(gate)
        if network.mode == "LSTM" and name.startswith("bias_ih"):
            nn.init.ones_(gates[FORGET])


def _shrink_residuals(stack: Encoder | Decoder) -> None:
    """Scale down what each block adds to the residual stream."""
    blocks: Iterable[EncoderBlock | DecoderBlock] = stack.blocks  # type: ignore[assignment]
    outputs = [linear.weight for block in blocks for linear in block.residual_outputs()]
    for weight in {id(each): each for each in outputs}.values():  # blocks may share theirs
        weight.div_(math.sqrt(len(outputs)))


# Random functions, and the ones that allocate the same tensor without drawing numbers.
_ALLOCATE: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    torch.randn: torch.empty,
    torch.rand: torch.empty,
    torch.randn_like: torch.empty_like,
    torch.rand_like: torch.empty_like,
}
_FILL: set[Callable[..., Tensor]] = {
    *(torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_, torch.Tensor.exponential_),
    *(nn.init.normal_, nn.init.uniform_, nn.init.kaiming_normal_, nn.init.kaiming_uniform_),
}


class _WithoutRandomNumbers(TorchFunctionMode):
    """Random functions draw nothing: new tensors are left as allocated, existing ones as they are."""

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in _FILL:
            return args[0] if args else named["tensor"]
        return _ALLOCATE.get(func, func)(*args, **named)


@contextmanager
def without_initialisation() -> Iterator[None]:
    """While open, models built in this thread draw no random weights; buffers (sines, slopes) are computed as always.

    with without_initialisation():
        model = build(config, sizes)
    model.load_state_dict(weights)  # until here they are undefined
    """
    token = _skipped.set(True)
    try:
        with _WithoutRandomNumbers():
            yield
    finally:
        _skipped.reset(token)
