"""GGUF, llama.cpp's format: one file with the weights, often quantised, the tokenizer and the chat template.

An architecture is a table from GGUF's names to Hugging Face's, and its config keys. What GGUF stores in another
layout is turned back: the rotary pairs of llama's queries and keys, Gemma's norms (+ 1), GPT-2's transposed matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format
from clearhead.interop.formats.base.gguf_file import MAGIC, GgufFile
from clearhead.interop.formats.base.gguf_tokenizer import read_tokenizer
from clearhead.interop.formats.base.lazy import LazyTensors
from clearhead.interop.table import row_orders
from clearhead.nn.quantised import FORMATS as BLOCK_FORMATS
from clearhead.nn.quantised import Quantised

Transform = Callable[[Tensor, "Model"], Tensor]
BUFFERS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")  # they are in the config


@FORMATS.register("gguf")
class Gguf(Format):
    """A .gguf file."""

    def can_read(self, path: Path) -> bool:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(4) == MAGIC

    def read(self, path: Path) -> Checkpoint:
        file = GgufFile(path)
        name = str(file.metadata.get("general.architecture"))
        if name not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise RunError(f"{path} is a GGUF file of the architecture {name}; Clearhead reads {known}")
        if (parts := file.metadata.get("split.count", 1)) > 1:
            raise RunError(f"{path} is one of {parts} parts of a model; join them with `llama-gguf-split --merge`")
        model = Model(file, name)
        architecture = ARCHITECTURES[name]
        tensors, skipped = _tensors(model, architecture)
        kinds = sorted({info.kind for info in file.tensors.values()} - {"F32", "F16"})
        half = {info.kind for info in file.tensors.values()} == {"F16", "F32"}
        precision = f"{', '.join(kinds)} dequantised to float32" if kinds else "float16" if half else "float32"
        config = {**model.rotary(), **architecture.config(model), **model.tokens()}
        tokenizer = read_tokenizer(file.metadata, path)
        quantised = _quantised(model, architecture)
        return Checkpoint(path, config, LazyTensors(tensors), tokenizer, skipped, precision, quantised)


class Model:
    """The metadata of one model, by its architecture's keys."""

    def __init__(self, file: GgufFile, architecture: str):
        self.file, self.architecture = file, architecture

    def get(self, key: str, default: Any = None) -> Any:
        value = self.file.metadata.get(f"{self.architecture}.{key}", default)
        # One value for each layer, where they are all equal, is one value.
        if hasattr(value, "tolist"):
            values = set(value.tolist())
            if len(values) != 1:
                raise RunError(f"{self.file.path}: {key} differs between layers, which Clearhead does not support")
            return values.pop()
        return value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
            raise RunError(f"{self.file.path} is damaged: {self.architecture}.{key} is {value}")
        return value

    def number(self, key: str, default: float) -> float:
        """A float32, as the shortest decimal number that it stands for."""
        return float(f"{float(self.get(key, default)):.7g}")

    @property
    def heads(self) -> int:
        return self.size("attention.head_count")

    @property
    def kv_heads(self) -> int:
        return self.size("attention.head_count_kv", self.heads)

    @property
    def head_dim(self) -> int:
        return self.size("attention.key_length", self.size("embedding_length") // self.heads)

    def shape(self, tensor: str) -> tuple[int, ...]:
        info = self.file.tensors.get(tensor)
        if info is None:
            raise RunError(f"{self.file.path} is damaged: it has no tensor {tensor}")
        return info.shape

    def has(self, tensor: str) -> bool:
        return tensor in self.file.tensors

    def tokens(self) -> dict[str, Any]:
        """The vocabulary's size, the ids of special tokens, and whether the output is the embedding."""
        known: dict[str, Any] = {
            "vocab_size": self.shape("token_embd.weight")[0],
            "tie_word_embeddings": not self.has("output.weight"),
        }
        for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
            index = self.file.metadata.get(f"tokenizer.ggml.{theirs}_token_id")
            known[f"{ours}_token_id"] = None if index is None else int(index)  # never an architecture's default
        turns = (self.file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))
        if ends := [int(each) for each in turns if each is not None and int(each) != known["eos_token_id"]]:
            known["eos_token_id"] = [each for each in (known["eos_token_id"], *ends) if each is not None]
        return known

    def rotary(self) -> dict[str, Any]:
        """The base and the scaling of rotary positions; nothing for a model that has none."""
        if not self.get("rope.dimension_count") and self.get("rope.freq_base") is None:
            return {}
        settings: dict[str, Any] = {"rope_theta": self.number("rope.freq_base", 10000.0)}
        if (rotated := self.get("rope.dimension_count") or self.head_dim) != self.head_dim:
            settings["partial_rotary_factor"] = rotated / self.head_dim
        kind = self.get("rope.scaling.type", "linear")
        factor = self.number("rope.scaling.factor", 0.0) or self.number("rope.scale_linear", 1.0)  # its name of 2023
        original = self.get("rope.scaling.original_context_length")
        if self.has("rope_factors_long.weight"):
            settings["original_max_position_embeddings"] = self.size("rope.scaling.original_context_length")
            settings["rope_scaling"] = {
                "rope_type": "longrope",
                "long_factor": self.file.read("rope_factors_long.weight").tolist(),
                "short_factor": self.file.read("rope_factors_short.weight").tolist(),
                "attention_factor": self.get("rope.scaling.attn_factor"),
            }
        elif self.has("rope_freqs.weight"):
            settings["rope_scaling"] = _llama3_scaling(self, settings["rope_theta"])
        elif kind == "linear" and factor != 1.0:
            settings["rope_scaling"] = {"rope_type": "linear", "factor": factor}
        elif kind == "yarn":
            gain = self.get("rope.scaling.attn_factor")
            settings["rope_scaling"] = {
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original,
                "attention_factor": None if gain is None else gain * (0.1 * math.log(factor) + 1.0),
                "beta_fast": self.get("rope.scaling.yarn_beta_fast"),
                "beta_slow": self.get("rope.scaling.yarn_beta_slow"),
            }
        return settings

    def dense(self) -> dict[str, Any]:
        """The sizes that models with RMS norms and gated feed-forward networks share."""
        return {
            "hidden_size": self.size("embedding_length"),
            "intermediate_size": self.size("feed_forward_length"),
            "num_hidden_layers": self.size("block_count"),
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.size("context_length"),
            "rms_norm_eps": self.number("attention.layer_norm_rms_epsilon", 1e-6),
            "hidden_act": "silu",
        }


def _llama3_scaling(model: Model, base: float) -> dict[str, Any]:
    """The settings behind the divisor of each frequency that Llama 3.1 and later store."""
    divisors = model.file.read("rope_freqs.weight").double()
    pairs = torch.arange(0, 2 * len(divisors), 2, dtype=torch.float64)
    wavelength = 2 * math.pi * base ** (pairs / (2 * len(divisors)))
    factor, low, high = float(divisors.max()), 1.0, 4.0
    for original in (8192, model.get("rope.scaling.original_context_length"), model.get("context_length")):
        if original:
            smooth = ((original / wavelength - low) / (high - low)).clamp(0, 1)
            if torch.allclose(1 / ((1 - smooth) / factor + smooth), divisors, rtol=1e-4):
                return {
                    "rope_type": "llama3",
                    "factor": round(factor, 6),
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": int(original),
                }
    listed = divisors.tolist()  # of settings that are not known, as they are
    return {"rope_type": "longrope", "short_factor": listed, "long_factor": listed, "attention_factor": 1.0}


# --- the architectures ---


@dataclass(frozen=True)
class Architecture:
    """How one architecture's tensors and settings are called by Hugging Face."""

    config: Callable[[Model], dict[str, Any]]
    outside: Mapping[str, str]  # name without .weight or .bias
    inside: Mapping[str, str]  # of a block, after `blk.N.`
    block: str = "model.layers.{}."
    transforms: Mapping[str, Transform] = field(default_factory=dict)  # by the last part of GGUF's name


def _tensors(model: Model, architecture: Architecture) -> tuple[dict[str, Callable[[], Tensor]], dict[str, str]]:
    """Hugging Face's names of all tensors, and what is left out; a tensor that no table has is an error."""
    found: dict[str, Callable[[], Tensor]] = {}
    skipped = {}
    for name in model.file.tensors:
        if name in BUFFERS:
            skipped[name] = "its values are computed from the configuration"
            continue
        theirs = _renamed(name, architecture)
        if theirs is None:
            raise RunError(
                f"{model.file.path} has a tensor {name}, which a {model.architecture} model of Clearhead lacks"
            )
        found[theirs] = partial(_read, model, name, _transform(name, architecture))
    return found, skipped


def _quantised(model: Model, architecture: Architecture) -> dict[str, Callable[[], Quantised]]:
    """The matrices that are stored in blocks, by Hugging Face's names, where their layout differs in rows only."""
    found: dict[str, Callable[[], Quantised]] = {}
    for name, info in model.file.tensors.items():
        theirs = _renamed(name, architecture)
        if theirs is not None and info.kind in BLOCK_FORMATS and len(info.shape) == 2:
            transform = _transform(name, architecture)
            orders = row_orders(info.shape[0], lambda x, f=transform: [x if f is None else f(x, model)])  # type: ignore[misc]
            if orders is not None:
                found[theirs] = partial(_read_blocks, model, name, orders[0])
    return found


def _read_blocks(model: Model, name: str, order: Tensor) -> Quantised:
    return Quantised(model.file.tensors[name].kind, model.file.read_blocks(name)[order])


def _transform(name: str, architecture: Architecture) -> Transform | None:
    stem, _, suffix = name.rpartition(".")
    return architecture.transforms.get(f"{stem.rpartition('.')[2]}.{suffix}")


def _renamed(name: str, architecture: Architecture) -> str | None:
    stem, _, suffix = name.rpartition(".")
    if stem in architecture.outside:
        return f"{architecture.outside[stem]}.{suffix}"
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[1].isdigit() and parts[2] in architecture.inside:
        return f"{architecture.block.format(int(parts[1]))}{architecture.inside[parts[2]]}.{suffix}"
    return None


def _read(model: Model, name: str, transform: Transform | None) -> Tensor:
    tensor = model.file.read(name)
    try:
        return tensor if transform is None else transform(tensor, model).contiguous()
    except RuntimeError:  # it cannot be cut into so many heads
        shape = tuple(tensor.shape)
        raise RunError(f"{model.file.path} is damaged: {name} has the shape {shape}, unlike its metadata") from None


def halves_from_pairs(weight: Tensor, heads: int) -> Tensor:
    """(H × K, …) whose rotary partners are neighbours -> (H × K, …) whose partners are (i, i + K/2)."""
    return weight.reshape(heads, -1, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _query_halves(weight: Tensor, model: Model) -> Tensor:
    return halves_from_pairs(weight, model.heads)


def _key_halves(weight: Tensor, model: Model) -> Tensor:
    return halves_from_pairs(weight, model.kv_heads)


def _transposed(weight: Tensor, _model: Model) -> Tensor:
    return weight.T


def _without_one(weight: Tensor, _model: Model) -> Tensor:
    return weight - 1


GATED = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


def _llama(model: Model) -> dict[str, Any]:
    biased = model.has("blk.0.attn_q.bias")
    names = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    return {**names, **model.dense(), "attention_bias": biased, "mlp_bias": model.has("blk.0.ffn_up.bias")}


def _qwen2(model: Model) -> dict[str, Any]:
    # Biases are part of the architecture: Qwen2 always has them, and only on queries, keys and values.
    return {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **model.dense()}


def _qwen3(model: Model) -> dict[str, Any]:
    return {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **model.dense()}


GEMMA3_27B_LAYERS = 62  # the one size whose queries are not scaled by the size of a head
GEMMA3_PERIOD = 6  # every sixth layer sees everything


def _gemma3(model: Model) -> dict[str, Any]:
    sizes = model.dense()
    layers = sizes["num_hidden_layers"]
    scalar = sizes["hidden_size"] // model.heads if layers == GEMMA3_27B_LAYERS else model.head_dim
    kinds = ["sliding_attention" if (layer + 1) % GEMMA3_PERIOD else "full_attention" for layer in range(layers)]
    sizes |= {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scalar,
        "sliding_window": model.size("attention.sliding_window"),
        "layer_types": kinds,
        "rope_theta": model.number("rope.freq_base", 1e6),
        "rope_local_base_freq": model.number("rope.freq_base_swa", 10000.0),
        "final_logit_softcapping": model.get("final_logit_softcapping"),
    }
    del sizes["hidden_act"]
    return sizes


def _gemma(model: Model) -> dict[str, Any]:
    names = {"model_type": "gemma", "architectures": ["GemmaForCausalLM"]}
    return {**model.dense(), **names, "hidden_act": "gelu_pytorch_tanh"}


GEMMA2_27B_LAYERS = 46  # the one size whose queries are not scaled by the size of a head


def _gemma2(model: Model) -> dict[str, Any]:
    sizes = {**model.dense(), "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}
    large = sizes["num_hidden_layers"] == GEMMA2_27B_LAYERS
    return {
        **sizes,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": sizes["hidden_size"] // model.heads if large else model.head_dim,
        "sliding_window": model.size("attention.sliding_window", 4096),
        "attn_logit_softcapping": model.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": model.number("final_logit_softcapping", 30.0),
    }


def _gpt2(model: Model) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": model.size("embedding_length"),
        "n_layer": model.size("block_count"),
        "n_head": model.heads,
        "n_inner": model.size("feed_forward_length"),
        "n_positions": model.shape("position_embd.weight")[0],
        "layer_norm_epsilon": model.number("attention.layer_norm_epsilon", 1e-5),
        "activation_function": "gelu_new",
    }


def _phi3(model: Model) -> dict[str, Any]:
    rotated = model.size("rope.dimension_count", model.head_dim)
    return {
        "model_type": "phi3",
        "architectures": ["Phi3ForCausalLM"],
        **model.dense(),
        "sliding_window": model.get("attention.sliding_window") or None,
        "partial_rotary_factor": rotated / model.head_dim,
    }


def _bert(model: Model) -> dict[str, Any]:
    pooling = {1: "mean", 2: "class", 3: "last"}.get(model.get("pooling_type", 0))
    return {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": model.size("embedding_length"),
        "intermediate_size": model.size("feed_forward_length"),
        "num_hidden_layers": model.size("block_count"),
        "num_attention_heads": model.heads,
        "max_position_embeddings": model.shape("position_embd.weight")[0],
        "type_vocab_size": model.shape("token_types.weight")[0],
        "layer_norm_eps": model.number("attention.layer_norm_epsilon", 1e-12),
        "hidden_act": "gelu",
        **({"sentence_embedding": {"pooling": pooling}} if pooling else {}),
    }


GEMMA_BLOCK = {
    **GATED,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GEMMA_GAINS = dict.fromkeys(
    [
        *("attn_norm.weight", "ffn_norm.weight", "post_attention_norm.weight", "post_ffw_norm.weight"),
        *("attn_q_norm.weight", "attn_k_norm.weight", "output_norm.weight"),
    ],
    _without_one,
)
ARCHITECTURES = {
    "llama": Architecture(
        _llama,
        OUTSIDE,
        GATED,
        transforms={
            "attn_q.weight": _query_halves,
            "attn_q.bias": _query_halves,
            "attn_k.weight": _key_halves,
            "attn_k.bias": _key_halves,
        },
    ),
    "qwen2": Architecture(_qwen2, OUTSIDE, GATED),
    "qwen3": Architecture(_qwen3, OUTSIDE, {**GATED, **HEAD_NORMS}),
    "gemma": Architecture(_gemma, OUTSIDE, GATED, transforms=GEMMA_GAINS),
    "gemma2": Architecture(_gemma2, OUTSIDE, GEMMA_BLOCK, transforms=GEMMA_GAINS),
    "gemma3": Architecture(_gemma3, OUTSIDE, {**GEMMA_BLOCK, **HEAD_NORMS}, transforms=GEMMA_GAINS),
    "gpt2": Architecture(
        _gpt2,
        {
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        {
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        "transformer.h.{}.",
        dict.fromkeys(("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"), _transposed),
    ),
    "phi3": Architecture(
        _phi3,
        OUTSIDE,
        {
            "attn_norm": "input_layernorm",
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_norm": "post_attention_layernorm",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
        },
    ),
    "bert": Architecture(
        _bert,
        {
            "token_embd": "embeddings.word_embeddings",
            "position_embd": "embeddings.position_embeddings",
            "token_types": "embeddings.token_type_embeddings",
            "token_embd_norm": "embeddings.LayerNorm",
        },
        {
            "attn_q": "attention.self.query",
            "attn_k": "attention.self.key",
            "attn_v": "attention.self.value",
            "attn_output": "attention.output.dense",
            "attn_output_norm": "attention.output.LayerNorm",
            "ffn_up": "intermediate.dense",
            "ffn_down": "output.dense",
            "layer_output_norm": "output.LayerNorm",
        },
        "encoder.layer.{}.",
    ),
}
