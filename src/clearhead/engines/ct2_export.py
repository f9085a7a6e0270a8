"""Export a Transformer as a model directory of CTranslate2.

    export(network, token_names, folder, start=tokenizer.start, stop=tokenizer.stop)

What the library cannot express is refused with one sentence. Weights stay in float32: the library quantises them when
it loads the model.

    D width, H heads, G key-value heads, K key size, N vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import EngineError
from clearhead.models.build import TokenInput
from clearhead.models.config import ModelConfig
from clearhead.models.lm import LanguageModel
from clearhead.models.seq2seq import Seq2Seq
from clearhead.nn import MultiHeadAttention, NoRelativePositions, T5Relative, softmax
from clearhead.nn.norm import NativeNorm
from clearhead.nn.scores import dot_scale
from clearhead.text import UNKNOWN

POSITIONS = 4096  # rows of a sinusoidal table; a learned one has its module length

# our name: the library's
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "gelu_tanh": "GELUTanh", "quick_gelu": "GELUSigmoid"}
NOT_EXPRESSED = (  # settings of the model that have no form in the library
    *("embedding_dim", "embedding_norm", "segments", "norm_eps", "head_norm", "layer_windows", "rotary_dim"),
    *("joint_norm", "rotary_factors", "rotary_gain", "parallel", "output_transform", "output_cap"),
)
PLACEMENTS = ("before", "after", "around")
IN_HEADS = ("rotary", "alibi", "t5")  # schemes that the library computes itself; it reads others from a table


def library() -> Any:
    """The module ctranslate2."""
    try:
        return import_module("ctranslate2")
    except ImportError:
        raise EngineError("the engine ct2 needs CTranslate2, not installed here; pip install ctranslate2") from None


def unsupported_features(network: nn.Module) -> list[str]:
    """What CTranslate2 cannot express of a network; empty where it can express everything."""
    if not isinstance(network, Seq2Seq | LanguageModel):
        return [f"{type(network).__name__}: only Transformers that translate or continue a text are supported"]
    return list(_unsupported_settings(network))


def _unsupported_settings(network: Seq2Seq | LanguageModel) -> Iterator[str]:
    """The settings that CTranslate2 has no form of."""
    config, block = network.config, _first_block(network)
    kernel, positions = block.self_attention.kernel, network.decoder_input.positions
    if dot_scale(kernel.score, 1) is None:
        yield f"model.score={config.score}"
    if kernel.normalize is not softmax:
        yield "model.hard"
    if not isinstance(block.residual1.norm, NativeNorm):
        yield f"model.norm={config.norm}"
    if config.placement not in PLACEMENTS:
        yield f"model.placement={config.placement}"
    if block.feed_forward.native_form() is None:
        yield f"model.feed_forward={config.feed_forward}"
    if config.position_concat:
        yield "model.position_concat"
    elif not (positions.is_added and _scheme(network) in ("", *IN_HEADS)):
        yield f"model.positions={config.positions}"
    if _scheme(network) == "alibi" and isinstance(network, Seq2Seq):
        yield "model.positions=alibi in an encoder"
    if config.window is not None:
        yield f"model.window={config.window}"
    for name in NOT_EXPRESSED:
        if getattr(config, name) != ModelConfig.model_fields[name].default:
            yield f"model.{name}={getattr(config, name)}"
    if (config.key_dim or config.dim // config.heads) != (config.value_dim or config.dim // config.heads):
        yield "model.key_dim and model.value_dim that differ"


def _first_block(network: Seq2Seq | LanguageModel) -> Any:
    return network.decoder_stack.blocks[0]


def _scheme(network: Seq2Seq | LanguageModel) -> str:
    """The position scheme inside the heads, or "" if there is none."""
    relative = _first_block(network).self_attention.relative
    return "" if isinstance(relative, NoRelativePositions) else relative.scheme


def numbers(size: int) -> list[str]:
    """Names for a vocabulary without a tokenizer."""
    return [str(index) for index in range(size)]


def unique(names: Sequence[str]) -> list[str]:
    """Add its index to every name that an earlier token has already.

    >>> unique(["a", "�", "�"])
    ['a', '�', '�#2']
    """
    taken: dict[str, None] = {}
    for index, name in enumerate(names):
        while name in taken:
            name = f"{name}#{index}"
        taken[name] = None
    return list(taken)


def export(
    network: Seq2Seq | LanguageModel, token_names: Sequence[str], folder: str | Path, *, start: int, stop: int
) -> None:
    """Write a network into an existing folder; `token_names` has a name for every token."""
    specs, size = library().specs, network.output.linear.out_features
    if reasons := unsupported_features(network):
        raise EngineError(f"CTranslate2 cannot express {reasons[0]}; use another engine")
    if len(token_names) != size:
        raise EngineError(f"a network of {size} tokens needs as many token names, and got {len(token_names)}")
    spec = _translator(specs, network) if isinstance(network, Seq2Seq) else _language_model(specs, network)
    _set_tokens(spec, unique(token_names), start, stop)
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))


def _translator(specs: Any, network: Seq2Seq) -> Any:
    config = network.config
    encoder = specs.transformer_spec.TransformerEncoderSpec(**_sizes(specs, network))
    sizes = {**_sizes(specs, network), "num_layers": config.decoder_layers or config.layers}
    decoder = specs.transformer_spec.TransformerDecoderSpec(
        **sizes, external_pre_post_encoder_layers=config.placement == "around"
    )
    _fill_stack(encoder, network.encoder, config)
    _fill_stack(decoder, network.decoder, config)
    _fill_input(encoder, encoder.embeddings[0], network.source, network)
    _fill_input(decoder, decoder.embeddings, network.target, network)
    _fill_linear(decoder.projection, network.output.linear)
    return specs.transformer_spec.TransformerSpec(encoder, decoder)


def _language_model(specs: Any, network: LanguageModel) -> Any:
    config = network.config
    decoder = specs.transformer_spec.TransformerDecoderSpec(
        **_sizes(specs, network), with_encoder_attention=False, alibi=_scheme(network) == "alibi"
    )
    _fill_stack(decoder, network.stack, config)
    _fill_input(decoder, decoder.embeddings, network.tokens, network)
    _fill_linear(decoder.projection, network.output.linear)
    return specs.transformer_spec.TransformerDecoderModelSpec(decoder)


def _sizes(specs: Any, network: Seq2Seq | LanguageModel) -> dict[str, Any]:
    config, block, scheme = network.config, _first_block(network), _scheme(network)
    feed_forward = block.feed_forward.native_form()
    return {
        "num_layers": config.layers,
        "num_heads": config.heads,
        "num_heads_kv": config.kv_heads,
        "head_dim": config.key_dim,
        "pre_norm": config.placement != "after",
        "pre_post_layer_norm": config.placement == "around",
        "rms_norm": block.residual1.norm.native_form().kind == "rms",
        "activation": specs.common_spec.Activation[ACTIVATIONS[feed_forward.activation]],
        "ffn_glu": feed_forward.gate is not None,
        "relative_attention_bias": scheme == "t5",
        "rotary_dim": 0 if scheme == "rotary" else None,  # 0: all of a head
        "rotary_interleave": False,  # our pairs are (i, i + K/2)
        "rotary_base": config.position_base,
    }


def _set_tokens(spec: Any, vocabulary: list[str], start: int, stop: int) -> None:
    spec.config.unk_token = UNKNOWN if UNKNOWN in vocabulary else vocabulary[start]
    spec.config.bos_token, spec.config.eos_token = vocabulary[start], vocabulary[stop]
    spec.config.layer_norm_epsilon = 1e-5  # of all our norms
    if hasattr(spec.config, "add_source_eos"):
        spec.config.add_source_eos, spec.config.decoder_start_token = True, vocabulary[start]
        spec.register_source_vocabulary(vocabulary)
        spec.register_target_vocabulary(vocabulary)
    else:
        spec.register_vocabulary(vocabulary)


def _fill_input(stack: Any, embedding: Any, own: TokenInput, network: Seq2Seq | LanguageModel) -> None:
    embedding.weight = _weight(own.tokens.table.weight)  # (N, D)
    stack.scale_embeddings = own.tokens.scale
    if _scheme(network) == "":
        vectors = own.positions.vectors(POSITIONS)  # (positions, D)
        table = torch.zeros(POSITIONS, network.config.dim) if vectors is None else vectors
        stack.position_encodings.encodings = _weight(table)


def _fill_stack(stack: Any, module: Any, config: ModelConfig) -> None:
    for layer, block in zip(stack.layer, module.blocks, strict=True):
        _fill_self_attention(layer.self_attention, block.self_attention)
        if hasattr(layer, "attention"):
            _fill_cross_attention(layer.attention, block.cross_attention)
        _fill_feed_forward(layer.ffn, block.feed_forward)
        _fill_norms(layer, block, config)
    if config.placement != "after":
        _fill_norm(stack.layer_norm, module.norm)


def _fill_norms(layer: Any, block: Any, config: ModelConfig) -> None:
    """The norms of a block: one inside each of its parts, or one on each side of them."""
    crosses = hasattr(layer, "attention")
    first, last = block.residual1, block.residual3 if crosses else block.residual2
    if config.placement == "around":
        _fill_norm(layer.input_layer_norm, first.norm)
        _fill_norm(layer.post_attention_layer_norm, first.outer_norm)
        _fill_norm(layer.pre_feedforward_layer_norm, last.norm)
        _fill_norm(layer.post_feedforward_layer_norm, last.outer_norm)
        if crosses:
            _fill_norm(layer.external_pre_encoder_attention_layer_norm, block.residual2.norm)
            _fill_norm(layer.external_post_encoder_attention_layer_norm, block.residual2.outer_norm)
        return
    _fill_norm(layer.self_attention.layer_norm, first.norm)
    _fill_norm(layer.ffn.layer_norm, last.norm)
    if crosses:
        _fill_norm(layer.attention.layer_norm, block.residual2.norm)


def _fill_self_attention(attention: Any, own: MultiHeadAttention) -> None:
    """Queries, keys and values by one product."""
    _fill_linear(attention.linear[0], own.query, own.key, own.value)
    _fill_linear(attention.linear[1], own.output)
    _fill_scale(attention, own)
    if isinstance(own.relative, T5Relative):
        attention.relative_attention_bias = _weight(own.relative.table.weight)  # (buckets, H)
        attention.relative_attention_max_distance = torch.tensor(own.relative.longest, dtype=torch.int32).numpy()


def _fill_cross_attention(attention: Any, own: MultiHeadAttention) -> None:
    """Keys and values by one product."""
    _fill_linear(attention.linear[0], own.query)
    _fill_linear(attention.linear[1], own.key, own.value)
    _fill_linear(attention.linear[2], own.output)
    _fill_scale(attention, own)


def _fill_scale(attention: Any, own: MultiHeadAttention) -> None:
    """The factor of q · k, where it is not the library's 1 / √K."""
    scale = dot_scale(own.kernel.score, own.key_dim)
    if scale != own.key_dim**-0.5:
        attention.queries_scale = scale


def _fill_feed_forward(part: Any, module: Any) -> None:
    """A gated one has the gate in the place of the first matrix."""
    gated = hasattr(part, "linear_0_noact")
    _fill_linear(part.linear_0, module.gate if gated else module.inner)
    _fill_linear(part.linear_1, module.outer)
    if gated:
        _fill_linear(part.linear_0_noact, module.inner)


def _fill_norm(norm: Any, module: Any) -> None:
    norm.gamma = _weight(module.weight)
    if hasattr(norm, "beta"):
        norm.beta = _weight(module.bias)


def _fill_linear(linear: Any, *parts: nn.Linear) -> None:
    """One matrix for several linear maps, their outputs side by side."""
    linear.weight = _weight(torch.cat([part.weight for part in parts]))  # (out, in)
    if parts[0].bias is not None:
        linear.bias = _weight(torch.cat([part.bias for part in parts]))


def _weight(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().contiguous().numpy()
