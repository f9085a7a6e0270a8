"""The equations of the lectures, one idea per file, under the lectures' names."""

from clearhead.nn.attention import (
    Explicit,
    Fused,
    MultiHeadAttention,
    attention,
    concatenate_and_project,
    fused_attention,
    pick_one,
    softmax,
    sum_of_projections,
)
from clearhead.nn.block import AddNorm, DecoderBlock, DecoderCache, EncoderBlock, NormAdd, NormAddNorm
from clearhead.nn.cache import Cache, FixedCache, GrowingCache, MemoryCache, WindowCache
from clearhead.nn.embedding import TokenEmbedding, one_hot
from clearhead.nn.feedforward import FeedForward, SwiGLU
from clearhead.nn.masks import Mask, additive, causal_mask, length_mask, padding_mask, window_mask
from clearhead.nn.norm import BatchNorm, LayerNorm, RMSNorm, layer_norm, rms_norm
from clearhead.nn.output import (
    ClassToken,
    FlattenOutput,
    SequenceOutput,
    TokenOutput,
    first_token,
    last_token,
    mean_token,
)
from clearhead.nn.patches import PatchEmbedding
from clearhead.nn.positions import (
    Alibi,
    LearnedPositions,
    NoPositions,
    RelativePositions,
    Rotary,
    SinusoidalPositions,
    T5Relative,
    add,
    concatenate,
)
from clearhead.nn.recurrent import Recurrent, State, sum_of_states
from clearhead.nn.scores import Additive, Bilinear, Cosine, cosine, dot, scaled_dot
from clearhead.nn.stack import Decoder, Encoder

__all__ = [
    "AddNorm",
    "Additive",
    "Alibi",
    "BatchNorm",
    "Bilinear",
    "Cache",
    "ClassToken",
    "Cosine",
    "Decoder",
    "DecoderBlock",
    "DecoderCache",
    "Encoder",
    "EncoderBlock",
    "Explicit",
    "FeedForward",
    "FixedCache",
    "FlattenOutput",
    "Fused",
    "GrowingCache",
    "LayerNorm",
    "LearnedPositions",
    "Mask",
    "MemoryCache",
    "MultiHeadAttention",
    "NoPositions",
    "NormAdd",
    "NormAddNorm",
    "PatchEmbedding",
    "RMSNorm",
    "Recurrent",
    "RelativePositions",
    "Rotary",
    "SequenceOutput",
    "SinusoidalPositions",
    "State",
    "SwiGLU",
    "T5Relative",
    "TokenEmbedding",
    "TokenOutput",
    "WindowCache",
    "add",
    "additive",
    "attention",
    "causal_mask",
    "concatenate",
    "concatenate_and_project",
    "cosine",
    "dot",
    "first_token",
    "fused_attention",
    "last_token",
    "layer_norm",
    "length_mask",
    "mean_token",
    "one_hot",
    "padding_mask",
    "pick_one",
    "rms_norm",
    "scaled_dot",
    "softmax",
    "sum_of_projections",
    "sum_of_states",
    "window_mask",
]
