"""The equations of the lectures, one idea per file, under the lectures' names."""

from clearhead.nn.attention import (
    Explicit,
    Fused,
    JointNorm,
    MultiHeadAttention,
    attention,
    concatenate_and_project,
    fused_attention,
    pick_one,
    softmax,
    sum_of_projections,
)
from clearhead.nn.block import (
    PLACEMENTS,
    Decoder,
    DecoderBlock,
    DecoderCache,
    Encoder,
    EncoderBlock,
    OutputNorm,
    ParallelBlock,
    PostNorm,
    PreNorm,
    Residual,
    SandwichNorm,
)
from clearhead.nn.cache import Cache, FixedCache, GrowingCache, MemoryCache, WindowCache
from clearhead.nn.embedding import (
    FeatureEmbedding,
    NgramEmbedding,
    OneSegment,
    PatchEmbedding,
    SegmentEmbedding,
    SoftCap,
    TokenEmbedding,
    TokenOutput,
    Transform,
    one_hot,
)
from clearhead.nn.feedforward import ACTIVATIONS, FEED_FORWARDS, FeedForward, FeedForwardLayer, GatedFeedForward, SwiGLU
from clearhead.nn.lora import LoRALinear, add_lora
from clearhead.nn.masks import Mask, additive_mask, causal_mask, length_mask, padding_mask, prefix_mask, window_mask
from clearhead.nn.norm import NORMS, BatchNorm, Dropout, LayerNorm, NoNorm, RMSNorm, layer_norm, rms_norm
from clearhead.nn.patches import PATCHES, ConvolutionalPatches, ResidualPatches
from clearhead.nn.pooling import (
    POOLS,
    ClassToken,
    ExtraTokens,
    FlattenOutput,
    PooledVector,
    SequenceOutput,
    UnitLength,
    first_token,
    last_token,
    max_token,
    mean_token,
)
from clearhead.nn.positions import (
    POSITIONS,
    Alibi,
    InputPositions,
    LearnedPositions,
    NoPositions,
    NoRelativePositions,
    PositionScheme,
    PositionSizes,
    RelativePositions,
    Rotary,
    SinusoidalPositions,
    T5Relative,
    add_positions,
    concatenate_positions,
)
from clearhead.nn.recurrent import CELLS, Recurrent, State, sum_of_states
from clearhead.nn.scores import (
    SCORES,
    AdditiveScore,
    BilinearScore,
    CappedScore,
    CosineScore,
    DotScore,
    cosine,
    dot,
    scaled_dot,
)
from clearhead.nn.wide import WideOutput

__all__ = ["Explicit", "Fused", "JointNorm", "MultiHeadAttention", "attention", "concatenate_and_project"]
__all__ += ["fused_attention", "pick_one", "softmax", "sum_of_projections"]
__all__ += ["PLACEMENTS", "Decoder", "DecoderBlock", "DecoderCache", "Encoder", "EncoderBlock"]
__all__ += ["OutputNorm", "ParallelBlock", "PostNorm", "PreNorm", "Residual", "SandwichNorm"]
__all__ += ["Cache", "FixedCache", "GrowingCache", "MemoryCache", "WindowCache"]
__all__ += ["PATCHES", "ConvolutionalPatches", "FeatureEmbedding", "ResidualPatches"]
__all__ += ["NgramEmbedding", "OneSegment", "PatchEmbedding", "SegmentEmbedding", "SoftCap", "TokenEmbedding"]
__all__ += ["TokenOutput", "Transform", "one_hot"]
__all__ += ["ACTIVATIONS", "FEED_FORWARDS", "FeedForward", "FeedForwardLayer", "GatedFeedForward", "SwiGLU"]
__all__ += ["LoRALinear", "add_lora"]
__all__ += ["Mask", "additive_mask", "causal_mask", "length_mask", "padding_mask", "prefix_mask", "window_mask"]
__all__ += ["NORMS", "BatchNorm", "Dropout", "LayerNorm", "NoNorm", "RMSNorm", "layer_norm", "rms_norm"]
__all__ += ["POOLS", "ClassToken", "ExtraTokens", "FlattenOutput", "PooledVector", "SequenceOutput", "UnitLength"]
__all__ += ["first_token", "last_token", "max_token", "mean_token"]
__all__ += ["POSITIONS", "Alibi", "InputPositions", "LearnedPositions", "NoPositions", "NoRelativePositions"]
__all__ += ["PositionScheme", "PositionSizes", "RelativePositions", "Rotary", "SinusoidalPositions"]
__all__ += ["T5Relative", "add_positions", "concatenate_positions"]
__all__ += ["CELLS", "Recurrent", "State", "sum_of_states"]
__all__ += ["SCORES", "AdditiveScore", "BilinearScore", "CappedScore", "CosineScore", "DotScore"]
__all__ += ["cosine", "dot", "scaled_dot"]
__all__ += ["WideOutput"]
