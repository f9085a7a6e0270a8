"""The architectures of GGUF files: Hugging Face's names and layouts of their tensors, and its settings.

An architecture is two names, one function and one table:

    model_type, head    of config.json, and the class of transformers with its network
    config(model)       what else config.json would say
    names(layout)       GGUF's names -> Hugging Face's; what is stored in another layout is changed back

Changed are the rotary pairs of llama's queries and keys, Gemma's norms (+ 1), GPT-2's transposed matrices, and joined
queries, keys and values that Hugging Face has head by head. An activation that GGUF does not name is the one of the
published models.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.interop.formats.base.gguf_model import Model
from clearhead.interop.table import PLUS_ONE, TURNED, Change, Into, Table, into, key_value_groups, within

Names = dict[str, str | Into]


@dataclass(frozen=True)
class Layout:
    """What decides where the tensors of an architecture go."""

    heads: int
    kv_heads: int
    tensors: Container[str]  # GGUF's names

    @classmethod
    def of(cls, model: Model) -> Layout:
        return cls(model.heads, model.kv_heads, model.file.tensors)


@dataclass(frozen=True)
class Architecture:
    """How one architecture's settings and tensors are called by Hugging Face."""

    model_type: str
    head: str  # the class with the network
    config: Callable[[Model], dict[str, Any]]
    names: Callable[[Layout], Table]

    def settings(self, model: Model) -> dict[str, Any]:
        """What config.json would say, without positions and tokens."""
        return {"model_type": self.model_type, "architectures": [self.head], **self.config(model)}


def undone(change: Change) -> Change:
    """The inverse of a change."""
    return Change(change.undo, change.apply)


def halves_from_pairs(weight: Tensor, heads: int) -> Tensor:
    """(H × K, …) whose rotary partners are neighbours -> (H × K, …) whose partners are (i, i + K/2)."""
    return weight.reshape(heads, -1, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def pairs_from_halves(weight: Tensor, heads: int) -> Tensor:
    """The inverse: rotary partners become neighbours."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def halves(heads: int) -> Change:
    """The order of rotary partners, as a change of a table."""
    return Change(lambda x: halves_from_pairs(x, heads), lambda x: pairs_from_halves(x, heads))


def joined(layout: Layout) -> Change:
    """All queries, all keys, all values -> some queries, a key and a value of each group of heads."""
    return undone(key_value_groups(layout.heads // layout.kv_heads, layout.kv_heads))


# --- tables of names ---

GATED: Names = {
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
OUTSIDE: Names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
HEAD_NORMS: Names = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
FUSED: Names = {  # Falcon's block, and that of BLOOM and GPT-NeoX, as far as they agree
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
GPT2_OUTSIDE: Names = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
GPT2_NORMS: Names = {"attn_norm": "ln_1", "ffn_norm": "ln_2"}
GPT2_MATRICES = {
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
BERT: Names = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
BERT_OUTSIDE: Names = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
}
T5_SELF = {**{f"attn_{part}": f"layer.0.SelfAttention.{part}" for part in "qkvo"}, "attn_norm": "layer.0.layer_norm"}
T5_SELF |= {"attn_rel_b": "layer.0.SelfAttention.relative_attention_bias"}
T5_CROSS = {f"cross_attn_{part}": f"layer.1.EncDecAttention.{part}" for part in "qkvo"}
T5_CROSS |= {"cross_attn_norm": "layer.1.layer_norm"}
T5_CROSS |= {"cross_attn_rel_b": "layer.1.EncDecAttention.relative_attention_bias"}


def table(block: Names, outside: Names = OUTSIDE, blocks: str = "model.layers.*.") -> Callable[[Layout], Table]:
    """The names of an architecture whose tensors are stored as Hugging Face has them."""
    names = {**within("blk.*.", blocks, block), **outside}
    return lambda _: names


def _llama_names(layout: Layout) -> Table:
    turned: Names = {
        "attn_q": into("self_attn.q_proj", change=halves(layout.heads)),
        "attn_k": into("self_attn.k_proj", change=halves(layout.kv_heads)),
    }
    return {**within("blk.*.", "model.layers.*.", {**GATED, **turned}), **OUTSIDE}


def _gemma_names(*more: Names) -> Callable[[Layout], Table]:
    block = {name: each for part in (GATED, *more) for name, each in part.items()}
    gains = {
        name: into(target, change=undone(PLUS_ONE))
        for name, target in {**block, **OUTSIDE}.items()
        if name.endswith("norm") and isinstance(target, str)
    }
    last = gains.pop("output_norm")
    return table({**block, **gains}, {**OUTSIDE, "output_norm": last})


def _gpt_neox_names(layout: Layout) -> Table:
    attention: Names = {
        "attn_qkv": into("attention.query_key_value", change=joined(layout)),
        "attn_output": "attention.dense",
    }
    ends = {"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out"}
    return {**within("blk.*.", "gpt_neox.layers.*.", {**FUSED, **attention}), **ends}


def _bloom_names(layout: Layout) -> Table:
    attention: Names = {
        "attn_qkv": into("self_attention.query_key_value", change=joined(layout)),
        "attn_output": "self_attention.dense",
    }
    ends = {"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "output": "lm_head"}
    ends |= {"token_embd_norm": "transformer.word_embeddings_layernorm"}
    return {**within("blk.*.", "transformer.h.*.", {**FUSED, **attention}), **ends}


def _falcon_names(layout: Layout) -> Table:
    """BLOOM's names; where there are two norms, the first is that of the feed-forward network."""
    if "blk.0.attn_norm_2.weight" not in layout.tensors:
        return _bloom_names(layout)
    norms: Names = {"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}
    return {**_bloom_names(layout), **within("blk.*.", "transformer.h.*.", norms)}


def _t5_names(layout: Layout) -> Table:
    up = "wi_1" if "enc.blk.0.ffn_gate.weight" in layout.tensors else "wi"
    matrices = {"ffn_gate": "DenseReluDense.wi_0", "ffn_up": f"DenseReluDense.{up}", "ffn_down": "DenseReluDense.wo"}
    feed_forward = {**matrices, "ffn_norm": "layer_norm"}
    return {
        **within("enc.blk.*.", "encoder.block.*.", {**T5_SELF, **within("", "layer.1.", feed_forward)}),
        **within("dec.blk.*.", "decoder.block.*.", {**T5_SELF, **T5_CROSS, **within("", "layer.2.", feed_forward)}),
        "token_embd": "shared",
        "output": "lm_head",
        "enc.output_norm": "encoder.final_layer_norm",
        "dec.output_norm": "decoder.final_layer_norm",
    }


# --- settings ---


def _llama(model: Model) -> dict[str, Any]:
    biased = model.has("blk.0.attn_q.bias")
    return {**model.dense(), "attention_bias": biased, "mlp_bias": model.has("blk.0.ffn_up.bias")}


def _granite(model: Model) -> dict[str, Any]:
    return {
        **_llama(model),
        "attention_multiplier": model.number("attention.scale", 0.0) or model.head_dim**-0.5,
        "embedding_multiplier": model.number("embedding_scale", 1.0),
        "residual_multiplier": model.number("residual_scale", 1.0),
        "logits_scaling": model.number("logit_scale", 1.0),
    }


def _olmo(model: Model) -> dict[str, Any]:
    return {**_llama(model), "clip_qkv": model.get("attention.clamp_kqv") or None}


GEMMA3_27B_LAYERS = 62  # the one size whose queries are not scaled by the size of a head
GEMMA3_PERIOD = 6  # every sixth layer sees everything


def _gemma3(model: Model) -> dict[str, Any]:
    sizes = model.dense()
    layers = sizes["num_hidden_layers"]
    scalar = sizes["hidden_size"] // model.heads if layers == GEMMA3_27B_LAYERS else model.head_dim
    kinds = ["sliding_attention" if (layer + 1) % GEMMA3_PERIOD else "full_attention" for layer in range(layers)]
    sizes |= {
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
    return {**model.dense(), "hidden_act": "gelu_pytorch_tanh"}


GEMMA2_27B_LAYERS = 46  # the one size whose queries are not scaled by the size of a head


def _gemma2(model: Model) -> dict[str, Any]:
    sizes = model.dense()
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
        "n_embd": model.size("embedding_length"),
        "n_layer": model.size("block_count"),
        "n_head": model.heads,
        "n_inner": model.size("feed_forward_length"),
        "n_positions": model.shape("position_embd.weight")[0],
        "layer_norm_epsilon": model.layer_norm_eps,
        "activation_function": "gelu_new",
    }


def _phi3(model: Model) -> dict[str, Any]:
    rotated = model.size("rope.dimension_count", model.head_dim)
    return {
        **model.dense(),
        "sliding_window": model.get("attention.sliding_window") or None,
        "partial_rotary_factor": rotated / model.head_dim,
    }


def _bert(model: Model) -> dict[str, Any]:
    pooling = {1: "mean", 2: "class", 3: "last"}.get(model.get("pooling_type", 0))
    return {
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


def _layer_norms(model: Model) -> dict[str, Any]:
    """The sizes that models with LayerNorm share; how much of a head is rotated is always said."""
    sizes = {name: value for name, value in model.dense().items() if name not in ("rms_norm_eps", "hidden_act")}
    return {**sizes, "partial_rotary_factor": model.rotated_share}


def _gpt_neox(model: Model) -> dict[str, Any]:
    return {
        **_layer_norms(model),
        "layer_norm_eps": model.layer_norm_eps,
        "hidden_act": "gelu",
        "attention_bias": model.has("blk.0.attn_qkv.bias"),
        "use_parallel_residual": bool(model.get("use_parallel_residual", True)),
        "rotary_pct": model.rotated_share,
    }


def _phi2(model: Model) -> dict[str, Any]:
    return {
        **_layer_norms(model),
        "intermediate_size": model.shape("blk.0.ffn_up.weight")[0],  # the metadata always says 4 × dim
        "layer_norm_eps": model.layer_norm_eps,
        "hidden_act": "gelu_new",
    }


def _starcoder2(model: Model) -> dict[str, Any]:
    return {
        **_layer_norms(model),
        "norm_epsilon": model.layer_norm_eps,
        "hidden_act": "gelu_pytorch_tanh",
        "use_bias": model.has("blk.0.attn_q.bias"),
        "sliding_window": model.get("attention.sliding_window") or None,
    }


def _stablelm(model: Model) -> dict[str, Any]:
    return {
        **_layer_norms(model),
        "layer_norm_eps": model.layer_norm_eps,
        "hidden_act": "silu",
        "use_qkv_bias": model.has("blk.0.attn_q.bias"),
        "use_parallel_residual": not model.has("blk.0.ffn_norm.weight"),  # the metadata is wrong in some files
    }


def _falcon(model: Model) -> dict[str, Any]:
    norms = 2 if model.has("blk.0.attn_norm_2.weight") else 1
    return {
        "hidden_size": model.size("embedding_length"),
        "ffn_hidden_size": model.shape("blk.0.ffn_up.weight")[0],
        "num_hidden_layers": model.size("block_count"),
        "num_attention_heads": model.heads,
        "num_kv_heads": model.kv_heads,
        "max_position_embeddings": model.size("context_length"),
        "layer_norm_epsilon": model.layer_norm_eps,
        "activation": "gelu",
        "bias": model.has("blk.0.attn_qkv.bias"),
        "new_decoder_architecture": norms == 2 or model.kv_heads > 1,
        "num_ln_in_parallel_attn": norms,
        "multi_query": model.kv_heads == 1,
        "parallel_attn": True,
        "alibi": False,
    }


def _bloom(model: Model) -> dict[str, Any]:
    return {
        "hidden_size": model.size("embedding_length"),
        "n_layer": model.size("block_count"),
        "n_head": model.heads,
        "seq_length": model.size("context_length"),
        "layer_norm_epsilon": model.layer_norm_eps,
    }


def _starcoder(model: Model) -> dict[str, Any]:
    return {**_gpt2(model), "activation_function": "gelu_pytorch_tanh", "multi_query": model.kv_heads == 1}


def _t5(model: Model) -> dict[str, Any]:
    return {
        "d_model": model.size("embedding_length"),
        "d_ff": model.size("feed_forward_length"),
        "d_kv": model.head_dim,
        "num_layers": model.size("block_count"),
        "num_decoder_layers": model.size("decoder_block_count", model.size("block_count")),
        "num_heads": model.heads,
        "n_positions": model.size("context_length", 512),
        "layer_norm_epsilon": model.number("attention.layer_norm_rms_epsilon", 1e-6),
        "feed_forward_proj": "gated-gelu" if model.has("enc.blk.0.ffn_gate.weight") else "relu",
        "relative_attention_num_buckets": model.size("attention.relative_buckets_count", 32),
        "decoder_start_token_id": model.get("decoder_start_token_id", 0),
    }


GEMMA_NORMS: Names = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", _llama, _llama_names),
    # Biases are part of the architecture: Qwen2 always has them, and only on queries, keys and values.
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", Model.dense, table(GATED)),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", Model.dense, table({**GATED, **HEAD_NORMS})),
    "gemma": Architecture("gemma", "GemmaForCausalLM", _gemma, _gemma_names()),
    "gemma2": Architecture("gemma2", "Gemma2ForCausalLM", _gemma2, _gemma_names(GEMMA_NORMS)),
    "gemma3": Architecture("gemma3_text", "Gemma3ForCausalLM", _gemma3, _gemma_names(GEMMA_NORMS, HEAD_NORMS)),
    "gpt2": Architecture(
        "gpt2",
        "GPT2LMHeadModel",
        _gpt2,
        table(
            {**GPT2_NORMS, **{ours: into(theirs, change=TURNED) for ours, theirs in GPT2_MATRICES.items()}},
            GPT2_OUTSIDE,
            "transformer.h.*.",
        ),
    ),
    "phi3": Architecture(
        "phi3",
        "Phi3ForCausalLM",
        _phi3,
        table(
            {
                "attn_norm": "input_layernorm",
                "attn_qkv": "self_attn.qkv_proj",
                "attn_output": "self_attn.o_proj",
                "ffn_norm": "post_attention_layernorm",
                "ffn_up": "mlp.gate_up_proj",
                "ffn_down": "mlp.down_proj",
            }
        ),
    ),
    "bert": Architecture("bert", "BertModel", _bert, table(BERT, BERT_OUTSIDE, "encoder.layer.*.")),
    "gptneox": Architecture("gpt_neox", "GPTNeoXForCausalLM", _gpt_neox, _gpt_neox_names),
    "phi2": Architecture(
        "phi",
        "PhiForCausalLM",
        _phi2,
        table(
            {
                "attn_norm": "input_layernorm",
                "attn_q": "self_attn.q_proj",
                "attn_k": "self_attn.k_proj",
                "attn_v": "self_attn.v_proj",
                "attn_qkv": into("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),  # in files of 2023
                "attn_output": "self_attn.dense",
                "ffn_up": "mlp.fc1",
                "ffn_down": "mlp.fc2",
            },
            {**OUTSIDE, "output_norm": "model.final_layernorm"},
        ),
    ),
    "starcoder": Architecture(
        "gpt_bigcode",
        "GPTBigCodeForCausalLM",
        _starcoder,
        table({**GPT2_NORMS, **GPT2_MATRICES}, GPT2_OUTSIDE, "transformer.h.*."),
    ),
    "starcoder2": Architecture(
        "starcoder2",
        "Starcoder2ForCausalLM",
        _starcoder2,
        table({**GATED, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}),
    ),
    "stablelm": Architecture("stablelm", "StableLmForCausalLM", _stablelm, table(GATED)),
    "falcon": Architecture("falcon", "FalconForCausalLM", _falcon, _falcon_names),
    "bloom": Architecture("bloom", "BloomForCausalLM", _bloom, _bloom_names),
    "granite": Architecture("granite", "GraniteForCausalLM", _granite, _llama_names),
    "olmo": Architecture("olmo", "OlmoForCausalLM", _olmo, _llama_names),
    "olmo2": Architecture(
        "olmo2",
        "Olmo2ForCausalLM",
        Model.dense,
        table({**GATED, **HEAD_NORMS, **GEMMA_NORMS}),
    ),
    "t5": Architecture("t5", "T5ForConditionalGeneration", _t5, _t5_names),
    "t5encoder": Architecture("t5", "T5EncoderModel", _t5, _t5_names),
}
